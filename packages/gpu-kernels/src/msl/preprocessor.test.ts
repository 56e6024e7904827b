/** Macros and conditions, as a C preprocessor has them. */
import { describe, expect, it, test } from "vitest"
import { evaluateCondition } from "./condition"
import { cudaSource } from "./cuda"
import { preprocess } from "./preprocessor"

const expanded: [name: string, source: string, result: string][] = [
  ["values", "#define N 4\nint a[N];", "\nint a[4];"],
  ["values of values", "#define N M\n#define M 4\nN", "\n\n4"],
  ["functions", "#define SQ(x) ((x) * (x))\nSQ(a + 1)", "\n((a + 1) * (a + 1))"],
  ["functions of functions", "#define F(x) G(x, x)\n#define G(a, b) a-b\nF(F(1))", "\n\n1-1-1-1"],
  ["a name without its parentheses", "#define F(x) x\nF", "\nF"],
  ["arguments with commas in parentheses", "#define F(x, y) y\nF((1, 2), f<3>)", "\nf<3>"],
  ["text", "#define S(x) #x\nS(a  b)", '\n"a b"'],
  ["joined names", "#define J(a, b) a##_ ## b\nJ(x, 1)", "\nx_1"],
  ["any number of arguments", "#define F(n, ...) n<__VA_ARGS__>\nF(f, int, 2)", "\nf<int,2>"],
  ["nothing that is being expanded", "#define f f(x) + g\n#define g f\nf", "\n\nf(x) + f"],
  ["continued lines", "#define F(x) \\\n  x; \\\n  x\nF(1)", "\n\n\n1;    1"],
  ["calls over several lines", "#define F(x, y) x y\nF(1,\n  2)\nend", "\n1 2\n\nend"],
  ["no longer defined names", "#define A 1\n#undef A\nA", "\n\nA"],
  [
    "conditions",
    "#if defined(__METAL__) && __METAL_VERSION__ >= 310\na\n#elif 1\nb\n#else\nc\n#endif",
    "\na\n\n\n\n\n",
  ],
  ["conditions in conditions", "#ifdef X\n#if 1\na\n#endif\n#else\nb\n#endif", "\n\n\n\n\nb\n"],
]

describe("the preprocessor", () => {
  it.each(expanded)("expands %s", (_, source, result) => {
    expect(preprocess(source)).toBe(result)
  })
  it.each([
    ["#endif", "#endif has no #if"],
    ["#if 1\n", "a condition has no #endif"],
    ["#if (1\n#endif", "cannot evaluate the condition (1"],
    ["#define F(x) x\nF(1, 2)", "the macro F takes 1 arguments, received 2"],
    ["#define F(x) x\nF(1", "the call of the macro F has no end"],
    ["#error no", "no"],
  ])("refuses %j", (source, message) => {
    expect(preprocess(source)).toEqual([{ line: expect.any(Number), message }])
  })
})

test.each([
  ["1 + 2 * 3 == 7", 1],
  ["!(4 < 3) && ~0", 1],
  ["0x10 >> 2 | 1u", 5],
  ["X ? 1 : 2", 2],
  ["1 +", null],
  ["1 $ 2", null],
])("the condition %s is %s", (text, value) => {
  expect(evaluateCondition(text)).toBe(value)
})

test("kernels whose instances are macros", () => {
  const { kernels, source } = cudaSource(
    `#define instance(name, type) \\
  template [[host_name(#name "_" #type)]] [[kernel]] decltype(name<type>) name<type>;
#define HALF 0.5
template <typename T> [[kernel]] void f(device T* x [[buffer(0)]]) { x[0] = T(HALF); }
instance(f, float)
`.replace('#name "_" #type', "#name"),
  )
  expect(kernels.map((k) => k.name)).toEqual(["f"])
  expect(source).toContain("T(0.5f)")
})
