import { describe, expect, it } from "vitest"
import { translate } from "./scanner"

const kernel = (inner: string, parameters = "device float* out"): string =>
  `kernel void k(${parameters}) {\n${inner}\n}`

/** Sources that Metal rejects, the line that must be named, and the words of the message. */
const rejected: [name: string, source: string, message: string][] = [
  ["double", kernel("double x = 1;"), ":2: Metal has no double: use float"],
  ["goto", kernel("again: goto again;"), ":2: Metal has no goto"],
  ["a static local", kernel("static int n = 0;"), ":2: Metal has no static variables in functions"],
  ["new", kernel("int* p = new int;"), ":2: Metal has no new"],
  ["exceptions", kernel("try { } catch (...) { }"), ":2: Metal has no exceptions"],
  ["virtual functions", "struct A {\n virtual void f();\n};", ":2: Metal has no virtual functions"],
  [
    "recursion",
    "int f(int n) { return n > 0 ? f(n - 1) : 0; }",
    ':1: "f" calls itself: Metal has no recursion',
  ],
  [
    "mutual recursion",
    "int g(int n);\nint f(int n) { return g(n); }\nint g(int n) { return f(n); }",
    "Metal has no recursion",
  ],
  ["a mutable global", "float total;", ":1: a variable outside functions must be in the constant address"],
  [
    "a global constexpr without an address space",
    "\nconstexpr int n = 4;",
    ":2: a variable outside functions must be",
  ],
  [
    "an initialized threadgroup variable",
    kernel("threadgroup int n = 0;"),
    ":2: a threadgroup variable cannot have an initializer",
  ],
  [
    "a buffer index taken twice",
    kernel("", "device float* a [[buffer(1)]],\n device float* b [[buffer(1)]]"),
    ':2: "a" and "b" have the same buffer index 1',
  ],
  [
    "a buffer index above 30",
    kernel("", "device float* a [[buffer(31)]]"),
    ":1: buffer index 31 is above 30",
  ],
  [
    "an unqualified pointer",
    kernel("", "float* a [[buffer(0)]]"),
    ':1: the pointer or reference "a" needs an address space',
  ],
  [
    "an unqualified reference",
    "void f(const int& n) { }",
    'the pointer or reference "n" needs an address space',
  ],
  ["a thread pointer of a kernel", kernel("", "thread float* a"), "cannot be in the thread address space"],
  ["a kernel that returns", "kernel int k() { return 1; }", 'the kernel "k" must return void'],
  ["a parameter from nowhere", kernel("", "uint i"), 'the kernel parameter "i" needs an attribute'],
  [
    "an unknown attribute",
    kernel("", "uint i [[thread_id]]"),
    "no parameters with the attribute [[thread_id]]",
  ],
  [
    "a value as a buffer",
    kernel("", "float x [[buffer(0)]]"),
    '"x" must be a pointer or a reference to be a buffer',
  ],
  ["an included file", '#include "other.h"\n', ':1: cannot include files: #include "other.h"'],
]
const accepted: [name: string, source: string][] = [
  [
    "overloads that call each other",
    "float f(float x) { return x; }\nfloat f(int n) { return f(float(n)); }",
  ],
  [
    "a method of the name of a function",
    "int size(int n) { return n; }\nstruct A { int size() { return 1; } };",
  ],
  ["a constant table", "constant float t[2] = {1.0, 2.0};\nconstant constexpr int n = 3;"],
  ["template arguments of pointers", "template <typename P> struct H { P p; };\nH<int> f() { return {}; }"],
  ["a deleted function", "struct A { A(thread const A& a) = delete; };"],
  ["a variable of the name of its function", kernel("for (int k = 0; k < 9; k++) { }")],
  ["operators", "struct A { int n; };\nbool operator<(A a, A b) { return a.n < b.n; }"],
  [
    "operators with a sign of assignment, and of calls",
    "struct A { int n; int operator()(int k) { return n + k; } };\nbool operator<=(A a, A b) { return a.n <= b.n; }\nbool operator==(A a, A b) { return a.n == b.n; }",
  ],
]

describe("lint", () => {
  it.each(rejected)("rejects %s", (_, source, message) => {
    expect(() => translate({ text: source, file: "kernel.metal" })).toThrow(message)
  })
  it.each(accepted)("accepts %s", (_, source) => {
    expect(() => translate({ text: source, file: "kernel.metal" })).not.toThrow()
  })
  it("lists all problems with their lines", () => {
    expect(() =>
      translate({ text: kernel("double a;\n\ndouble b;"), file: "mine.metal" }),
    ).toThrowErrorMatchingInlineSnapshot(`
      [DeviceError: [metal] the source of a kernel does not compile:
      mine.metal:2: Metal has no double: use float
          double a;
      mine.metal:4: Metal has no double: use float
          double b;]
    `)
  })
})
