import { describe, expect, it } from "vitest"
import { needsPreprocessor, translate } from "./scanner"

const file = "kernel.metal"

/** The body of the translation, without the table. */
const body = (source: string): string => {
  const { code } = translate({ text: source, file })
  return code
    .slice(code.indexOf("\n") + 1, code.indexOf('\n#line 1 "kernel table"'))
    .replace(/[ \t]+/g, " ")
    .trim()
}
const table = (source: string): string =>
  /lz_kernels\[\] = \{\n([\s\S]*?)\n\};/.exec(translate({ text: source, file }).code)?.[1] ?? ""
const kernel = (inner: string): string =>
  `kernel void k(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n${inner}\n}`

describe("scanner", () => {
  it("takes attributes and address spaces off parameters", () => {
    expect(
      body("kernel void f(device const float* a [[buffer(0)]], constant int& n [[buffer(1)]]) { a[n]; }"),
    ).toMatchInlineSnapshot(`"void f( const float* a , const int& n ) { a[n]; }"`)
  })

  it("keeps one of several functions that differ in address spaces alone", () => {
    expect(
      body(`template <typename T> T at(device const T* x, int i) { return x[i]; }
template <typename T> T at(constant T* y, int j) { return y[j]; }
template <typename T> T at(threadgroup T* z, int k) { return z[k]; }
float at(device const float* x, uint i) { return x[i]; }
float sum(thread float* a) { return a[0]; }
float sum(thread float* a, float b = 1.0) { return b; }`),
    ).toMatchInlineSnapshot(`
      "template <typename T> T at( const T* x, int i) { return x[i]; }
       
      template <typename T> T at( T* z, int k) { return z[k]; }
      float at( const float* x, uint i) { return x[i]; }
      float sum( float* a) { return a[0]; }
      float sum( float* a, float b = 1.0f) { return b; }"
    `)
  })

  it("makes a table entry of every kernel", () => {
    expect(
      table(
        "namespace a { [[kernel]] void f(device float* x, threadgroup float* t [[threadgroup(0)]], uint2 p [[thread_position_in_grid]]) {} }",
      ),
    ).toMatchInlineSnapshot(
      `"lz::Entry<&a::f, decltype(&a::f), lz::Buffer<0>, lz::Threadgroup<0>, lz::attribute::thread_position_in_grid>::describe("f", LZ_WAITS, 0)"`,
    )
  })

  it.each([
    ["decltype", 'template [[host_name("f_half")]] [[kernel]] decltype(f<half, 2>) f<half, 2>;'],
    [
      "a signature",
      'template [[host_name("f_half")]] [[kernel]] void f<half, 2>(device half* x [[buffer(3)]]);',
    ],
  ])("registers instantiations by %s", (_, instantiation) => {
    const source = `template <typename T, int N> [[kernel]] void f(device T* x [[buffer(3)]]) { x[0] = T(N); }\n${instantiation}`
    const { kernels } = translate({ text: source, file })
    expect(kernels).toEqual([{ name: "f_half", buffers: 4 }])
    expect(table(source)).toBe(
      'lz::Entry<&f<half, 2>, decltype(&f<half, 2>), lz::Buffer<3>>::describe("f_half", LZ_WAITS, 0)',
    )
  })

  it("makes threadgroup variables references, and leaves pointers alone", () => {
    const text = body(
      kernel("threadgroup float a[4][8], b;\nthreadgroup float* p = a[0];\nthreadgroup vec<float, 4> v;"),
    )
    expect(
      text
        .split("\n")
        .slice(1, -1)
        .map((line) => line.trim()),
    ).toMatchInlineSnapshot(`
      [
        "static char lz_tag0; typedef float lz_type0[4][8]; lz_type0& a = lz::variable<lz_type0>(&lz_tag0); static char lz_tag1; typedef float lz_type1; lz_type1& b = lz::variable<lz_type1>(&lz_tag1);",
        "float* p = a[0];",
        "static char lz_tag2; typedef vec<float, 4> lz_type2; lz_type2& v = lz::variable<lz_type2>(&lz_tag2);",
      ]
    `)
  })

  it.each([
    ["2.0", "2.0f"],
    ["1e-5", "1e-5f"],
    [".5", ".5f"],
    ["2.0f", "2.0f"],
    ["3", "3"],
    ["0x1e5", "0x1e5"],
    ["0x1.8p3", "0x1.8p3f"],
    ["1.5h", "(half)1.5f"],
    ["1.5bf", "(bfloat)1.5f"],
    ["7u", "7u"],
    ["100UL", "100UL"],
  ])("reads the literal %s as %s", (from, to) => {
    expect(body(kernel(`out[i] = ${from};`))).toContain(`out[i] = ${to};`)
  })

  it.each([
    ["constant float x = 1.0f;", "const float x = 1.0f;"],
    ["constant const float x = 1.0f;", " const float x = 1.0f;"],
    ["constant constexpr float x = 1.0f;", "const constexpr float x = 1.0f;"],
  ])("turns %s into a constant", (from, to) => {
    expect(body(from)).toBe(to.trim())
  })

  it("resolves function constants", () => {
    const { code, constants } = translate({
      text: `constant bool flag [[function_constant(7)]];\nconstant bool both = is_function_constant_defined(flag) ? flag : true;\n${kernel("out[i] = both;")}`,
      file,
    })
    expect(constants).toEqual([{ name: "flag", index: 7, type: "bool" }])
    expect(code).toContain("constexpr bool flag = static_cast<bool>(LZ_CONSTANT_7)")
    expect(code).toContain("(LZ_DEFINED_7) ? flag : true")
  })

  it("keeps every line at its number", () => {
    const source = `// a comment\n/* of two\n lines */ #include\n#include <metal_stdlib>\n${kernel('threadgroup float a[\n4];\n/* x */ out[i] = "\\"".0;')}`
    const { code } = translate({ text: source.replace("#include\n", "\n"), file })
    const lines = code.slice(code.indexOf("\n") + 1).split("\n")
    expect(lines[4]).toContain("void k(")
    expect(lines[7]).toContain("out[i] =")
  })

  it("follows line markers of a preprocessor", () => {
    expect(() => translate({ text: '# 41 "x.metal"\n\nconstant float a = 1;\ndouble b;', file })).toThrow(
      "kernel.metal:43",
    )
  })

  it("knows what needs a preprocessor", () => {
    expect(needsPreprocessor("#include <metal_stdlib>\nkernel")).toBe(false)
    expect(needsPreprocessor("  #  define N 4")).toBe(true)
  })
})
