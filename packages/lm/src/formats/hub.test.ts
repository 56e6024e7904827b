/** Downloads from a local mock of the Hub. */
import { createHash } from "node:crypto"
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { basename, join } from "node:path"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { forGguf } from "../../test/gguf-checkpoints"
import { splitGguf } from "../../test/gguf-split"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-hub-"))
const folder = writeCheckpoint("llama-256", join(scratch, "llama"), 2, forGguf["llama-256"])
const COMMIT = "0123456789abcdef0123456789abcdef01234567"
const requests: string[] = []
/** Offsets at which downloads of weights start. */
const begins: number[] = []
let damaged = false
/** Numbers of bytes after which the next connections are cut. */
let cuts: number[] = []
let hub: Server
let hubUrl = ""

const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex")
/** Git's checksum of a file. */
const gitSum = (bytes: Buffer): string =>
  createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex")
const isLarge = (path: string): boolean => /\.(safetensors|gguf)$/.test(path)
/** A file of a repository. */
function fileOf(path: string, bytes: Buffer) {
  const lfs = isLarge(path) ? { lfs: { oid: sha256(bytes), size: bytes.length, pointerSize: 1 } } : {}
  return { path, bytes, entry: { type: "file", path, size: bytes.length, oid: gitSum(bytes), ...lfs } }
}
const files = readdirSync(folder).map((path) => fileOf(path, readFileSync(join(folder, path))))
/** The repositories, by their names. */
const repositories: Record<string, readonly ReturnType<typeof fileOf>[]> = { "tiny/llama": files }

beforeAll(async () => {
  hub = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://hub")
    requests.push(pathname)
    const json = (value: unknown): void => {
      response.setHeader("content-type", "application/json")
      response.end(JSON.stringify(value))
    }
    const [, name = ""] = /^(?:\/api\/models)?\/([\w-]+\/[\w-]+)/.exec(pathname) ?? []
    const files = repositories[name] ?? []
    if (name in repositories && /\/api\/models\/[\w-]+\/[\w-]+(\/revision\/[^/]+)?$/.test(pathname))
      return json({
        _id: "1",
        id: name,
        siblings: files.map(({ path }) => ({ rfilename: path })),
        sha: COMMIT,
        private: false,
        gated: false,
        downloads: 0,
        likes: 0,
        lastModified: new Date().toISOString(),
      })
    if (pathname.includes("/tree/")) {
      const all = searchParams.get("recursive") === "true"
      return json(files.filter(({ path }) => all || !path.includes("/")).map(({ entry }) => entry))
    }
    if (pathname.includes("/paths-info/")) {
      let body = ""
      request.on("data", (part: Buffer) => (body += part.toString()))
      request.on("end", () => {
        const { paths } = JSON.parse(body) as { paths: string[] }
        json(files.filter(({ path }) => paths.includes(path)).map(({ entry }) => entry))
      })
      return
    }
    const file = files.find(({ path }) => pathname.endsWith(`/resolve/${COMMIT}/${path}`))
    if (!file) {
      response.statusCode = 404
      response.end()
      return
    }
    const bytes = damaged && file.path.endsWith(".safetensors") ? Buffer.alloc(file.bytes.length) : file.bytes
    response.setHeader("etag", JSON.stringify(file.entry.oid))
    response.setHeader("x-repo-commit", COMMIT)
    const range = /bytes=(\d+)-(\d*)/.exec(request.headers.range ?? "")
    const [from, to] = range
      ? [Number(range[1]), range[2] ? Number(range[2]) : bytes.length - 1]
      : [0, bytes.length - 1]
    if (range) {
      response.statusCode = 206
      response.setHeader("content-range", `bytes ${from}-${to}/${bytes.length}`)
    }
    const part = bytes.subarray(from, to + 1)
    response.setHeader("content-length", part.length)
    const weights = isLarge(file.path) && request.method !== "HEAD" && part.length > 1
    if (weights) begins.push(from)
    const cut = weights ? cuts.shift() : undefined
    if (cut === undefined) return void response.end(request.method === "HEAD" ? undefined : part)
    response.write(part.subarray(0, cut), () => setTimeout(() => request.socket.destroy(), 50))
  })
  await new Promise<void>((resolve) => hub.listen(0, "127.0.0.1", resolve))
  hubUrl = `http://127.0.0.1:${(hub.address() as AddressInfo).port}`
})
afterAll(() => {
  hub.close()
  rmSync(scratch, { recursive: true })
})

test("an aborted download continues later where it stopped", async () => {
  const cacheDir = join(scratch, "aborted")
  const controller = new AbortController()
  const enough = new Error("enough")
  // The connection is cut after some bytes, and before the rest is asked for the load is aborted.
  cuts = [200_000]
  const onProgress = (done: number): void => {
    if (begins.length > 0 && done > 100_000) setTimeout(() => controller.abort(enough), 20)
  }
  begins.length = 0
  const first = lm.load("tiny/llama", { hubUrl, cacheDir, onProgress, signal: controller.signal })
  await expect(first).rejects.toBe(enough)
  cuts = []
  begins.length = 0
  const model = await lm.load("tiny/llama", { hubUrl, cacheDir })
  expect(begins[0]).toBeGreaterThan(0)
  expect(await lm.generate(model, "the", { maxTokens: 5 })).toBe(
    await lm.generate(await lm.load(folder), "the", { maxTokens: 5 }),
  )
})

test("a model is loaded from the Hub, then from its cache, then offline", async () => {
  const cacheDir = join(scratch, "cache")
  const seen: number[] = []
  const onProgress = (done: number, total: number): void => void seen.push(done / total)
  const model = await lm.load("tiny/llama", { hubUrl, cacheDir, onProgress })
  expect(seen).toContain(1)
  expect(model.source).toBe(join(cacheDir, "models--tiny--llama", "snapshots", COMMIT))
  expect(model.name).toBe("tiny/llama")
  const want = await lm.generate(await lm.load(folder), "the", { maxTokens: 5 })
  expect(await lm.generate(model, "the", { maxTokens: 5 })).toBe(want)
  requests.length = 0
  await lm.load("tiny/llama", { hubUrl, cacheDir })
  expect(requests.filter((path) => path.includes("/resolve/"))).toEqual([])
  const dead = "http://127.0.0.1:9"
  expect((await lm.load("tiny/llama", { hubUrl: dead, cacheDir })).source).toBe(model.source)
  expect((await lm.load("tiny/llama", { hubUrl: dead, cacheDir, offline: true })).source).toBe(model.source)
  await expect(lm.load("tiny/other", { hubUrl, cacheDir })).rejects.toThrow(
    /downloading it from the Hub failed/,
  )
  await expect(lm.load("tiny/other", { cacheDir, offline: true })).rejects.toThrow(/not in the cache/)
})

test("a revision whose commit is cached already is known offline too", async () => {
  const cacheDir = join(scratch, "revisions")
  await lm.load("tiny/llama", { hubUrl, cacheDir })
  await lm.load("tiny/llama", { hubUrl, cacheDir, revision: "v1" })
  expect((await lm.load("tiny/llama", { cacheDir, revision: "v1", offline: true })).tokenizer).not.toBe(null)
})

test("revisions with slashes are noted where Hugging Face's tools note them", async () => {
  const cacheDir = join(scratch, "slashes")
  const revision = "refs/pr/1"
  await lm.load("tiny/llama", { hubUrl, cacheDir, revision })
  const refs = join(cacheDir, "models--tiny--llama", "refs")
  expect(readdirSync(refs)).toEqual(["refs"])
  expect(readFileSync(join(refs, "refs", "pr", "1"), "utf8")).toBe(COMMIT)
  writeFileSync(join(refs, "refs", "pr", "2"), COMMIT)
  const other = { cacheDir, offline: true, revision: "refs/pr/2" }
  expect((await lm.load("tiny/llama", other)).tokenizer).not.toBe(null)
  await expect(lm.load("tiny/llama", { ...other, revision: "refs/pr" })).rejects.toThrow(
    /is not in the cache/,
  )
  // Names that go on in each other have no place beside each other, and are not noted.
  for (const unnoted of ["refs/pr", "refs/pr/1/x"]) {
    await lm.load("tiny/llama", { hubUrl, cacheDir, revision: unnoted })
    const offline = lm.load("tiny/llama", { cacheDir, offline: true, revision: unnoted })
    await expect(offline).rejects.toThrow(/is not in the cache/)
  }
})

test("a corrupt file is rejected, and downloaded again the next time", async () => {
  const cacheDir = join(scratch, "damaged")
  damaged = true
  await expect(lm.load("tiny/llama", { hubUrl, cacheDir })).rejects.toThrow(
    /does not match the Hub's checksum/,
  )
  damaged = false
  await lm.load("tiny/llama", { hubUrl, cacheDir })
})

test("an interrupted download is resumed, in one run and in the next", async () => {
  const cacheDir = join(scratch, "cut")
  cuts = [300_000, 200_000]
  begins.length = 0
  const model = await lm.load("tiny/llama", { hubUrl, cacheDir })
  expect(begins.slice(0, 3).map((from) => from > 0)).toEqual([false, true, true])
  expect(begins[1]).toBeLessThanOrEqual(300_000)
  expect(begins[2]).toBeGreaterThan(begins[1])
  expect(await lm.generate(model, "the", { maxTokens: 3 })).toBe(
    await lm.generate(await lm.load(folder), "the", { maxTokens: 3 }),
  )
  // Fails after several attempts without progress, and keeps the partial file.
  const other = join(scratch, "given-up")
  cuts = [300_000, 0, 0, 0, 0, 0]
  await expect(lm.load("tiny/llama", { hubUrl, cacheDir: other })).rejects.toThrow()
  const blobs = join(other, "models--tiny--llama", "blobs")
  expect(readdirSync(blobs).filter((name) => name.endsWith(".incomplete")).length).toBe(1)
  cuts = []
  begins.length = 0
  await lm.load("tiny/llama", { hubUrl, cacheDir: other })
  expect(begins[0]).toBeGreaterThan(0)
  expect(readdirSync(blobs).filter((name) => name.endsWith(".incomplete"))).toEqual([])
})

test("a file that is shorter than the Hub says is an error", async () => {
  const short = files.find(({ path }) => path.endsWith(".safetensors"))!
  short.entry.size += 10
  const cacheDir = join(scratch, "short")
  await expect(lm.load("tiny/llama", { hubUrl, cacheDir })).rejects.toThrow(/ends after \d+ of \d+ bytes/)
  short.entry.size -= 10
})

test("names, revisions and checksums do not leave the cache", async () => {
  const cacheDir = join(scratch, "within")
  for (const name of ["a/..", "../a", "a/b/c", "-a/b", "a/..b"])
    await expect(lm.load(name, { cacheDir, offline: true }), name).rejects.toThrow(
      /nor a name on the Hub|neither/,
    )
  for (const revision of ["v1.0+cu121", "feature/a#2", "release@1"])
    await expect(lm.load("tiny/llama", { cacheDir, offline: true, revision }), revision).rejects.toThrow(
      /is not in the cache/,
    )
  for (const revision of ["..", "../../x", "refs/../../x", "/x", "", "a\0"])
    await expect(lm.load("tiny/llama", { cacheDir, offline: true, revision }), revision).rejects.toThrow(
      /expected a branch, a tag or a commit/,
    )
  const config = files.find(({ path }) => path === "config.json")!
  const { oid } = config.entry
  config.entry.oid = "../../../stolen"
  await expect(lm.load("tiny/llama", { hubUrl, cacheDir })).rejects.toThrow(
    /the Hub has no checksum of config.json/,
  )
  config.entry.oid = oid
})

test("a small file with a wrong checksum is rejected too", async () => {
  const config = files.find(({ path }) => path === "config.json")!
  const { bytes } = config
  config.bytes = Buffer.from(bytes.toString().replace("llama", "lLama"))
  await expect(lm.load("tiny/llama", { hubUrl, cacheDir: join(scratch, "small") })).rejects.toThrow(
    /config.json does not match the Hub's checksum/,
  )
  config.bytes = bytes
})

test("a download that was interrupted is not taken for a model, by a commit or by a branch", async () => {
  for (const revision of [COMMIT, "main"]) {
    const cacheDir = join(scratch, `interrupted-${revision}`)
    const controller = new AbortController()
    const enough = new Error("enough")
    // After the weights, and before tokenizer.json.
    const onProgress = (_done: number, _total: number, name: string): void => {
      if (name === "model.safetensors.index.json") controller.abort(enough)
    }
    const stopped = lm.load("tiny/llama", {
      hubUrl,
      cacheDir,
      revision,
      onProgress,
      signal: controller.signal,
    })
    await expect(stopped).rejects.toBe(enough)
    const stored = readdirSync(join(cacheDir, "models--tiny--llama", "snapshots", COMMIT))
    expect(stored).toContain("model-00002-of-00002.safetensors")
    expect(stored).not.toContain("tokenizer.json")
    await expect(lm.load("tiny/llama", { cacheDir, revision, offline: true })).rejects.toThrow(
      /not in the cache/,
    )
    const model = await lm.load("tiny/llama", { hubUrl, cacheDir, revision })
    expect(model.tokenizer).not.toBe(null)
    // Other tools keep no order.
    rmSync(join(model.source, "tokenizer.json"))
    expect((await lm.load("tiny/llama", { hubUrl, cacheDir, revision })).tokenizer).not.toBe(null)
  }
})

test("further chat templates are downloaded too", async () => {
  const path = "additional_chat_templates/tool_use.jinja"
  files.push(fileOf(path, Buffer.from("tools")), fileOf("additional/x.jinja", Buffer.from("no")))
  const model = await lm.load("tiny/llama", { hubUrl, cacheDir: join(scratch, "templates") })
  files.splice(-2)
  expect(model.tokenizer?.templates.get("tool_use")).toBe("tools")
  expect(readdirSync(model.source)).not.toContain("additional")
})

test("the pooling of an embedder is downloaded too, from its own folder", async () => {
  const steps = [
    { type: "sentence_transformers.models.Transformer", path: "" },
    { type: "sentence_transformers.models.Pooling", path: "1_Pooling" },
  ]
  const added = { "modules.json": steps, "1_Pooling/config.json": { pooling_mode_cls_token: true } }
  for (const [path, value] of Object.entries(added))
    files.push(fileOf(path, Buffer.from(JSON.stringify(value))))
  const model = await lm.load("tiny/llama", { hubUrl, cacheDir: join(scratch, "pooling") })
  files.splice(-2)
  expect(model.pooling).toBe("first")
})

test("a repository of GGUF files is loaded if there is one, or one is named", async () => {
  const made = join(scratch, "made.gguf")
  lm.save(await lm.load(folder), made)
  const bytes = readFileSync(made)
  const cacheDir = join(scratch, "gguf")
  repositories["tiny/one"] = [
    fileOf("README.md", Buffer.from("One")),
    fileOf("llama-F32.gguf", bytes),
    fileOf("mmproj-F16.gguf", Buffer.from("pictures")),
  ]
  const want = await lm.generate(await lm.load(folder), "the", { maxTokens: 5 })
  const one = await lm.load("tiny/one", { hubUrl, cacheDir })
  expect(one.name).toBe("tiny/one")
  expect(one.source).toBe(join(cacheDir, "models--tiny--one", "snapshots", COMMIT, "llama-F32.gguf"))
  expect(await lm.generate(one, "the", { maxTokens: 5 })).toBe(want)
  expect((await lm.load("tiny/one", { cacheDir, offline: true })).source).toBe(one.source)
  repositories["tiny/two"] = ["a-Q8_0.gguf", "b/b-Q4_0.gguf"].map((path) => fileOf(path, bytes))
  await expect(lm.load("tiny/two", { hubUrl, cacheDir })).rejects.toThrow(
    "tiny/two has several GGUF files: a-Q8_0.gguf, b/b-Q4_0.gguf. Name one of them, as tiny/two/a-Q8_0.gguf",
  )
  const two = await lm.load("tiny/two/b/b-Q4_0.gguf", { hubUrl, cacheDir })
  expect(await lm.generate(two, "the", { maxTokens: 5 })).toBe(want)
  expect((await lm.load("tiny/two/b/b-Q4_0.gguf", { cacheDir, offline: true })).source).toBe(two.source)
  await expect(lm.load("tiny/two/c.gguf", { hubUrl, cacheDir })).rejects.toThrow(
    "tiny/two has no c.gguf. It has a-Q8_0.gguf, b/b-Q4_0.gguf",
  )
  // A folder is loaded where there is one.
  repositories["tiny/both"] = [...files, fileOf("llama-F32.gguf", bytes)]
  const both = await lm.load("tiny/both", { hubUrl, cacheDir })
  expect(both.source).toBe(join(cacheDir, "models--tiny--both", "snapshots", COMMIT))
  repositories["tiny/none"] = [fileOf("README.md", Buffer.from("None"))]
  await expect(lm.load("tiny/none", { hubUrl, cacheDir })).rejects.toThrow("tiny/none has no config.json")
})

test("a model in parts is downloaded whole", async () => {
  const made = join(scratch, "whole.gguf")
  lm.save(await lm.load(folder), made)
  const parts = splitGguf(made, scratch, 3).map((path) => fileOf(`Q4/${basename(path)}`, readFileSync(path)))
  repositories["tiny/parts"] = parts
  const cacheDir = join(scratch, "parts")
  const want = await lm.generate(await lm.load(folder), "the", { maxTokens: 5 })
  const seen: [number, number][] = []
  const onProgress = (done: number, total: number): void => void seen.push([done, total])
  const model = await lm.load("tiny/parts", { hubUrl, cacheDir, onProgress })
  const size = parts.reduce((sum, { bytes }) => sum + bytes.length, 0)
  expect(seen.every(([, total]) => total === size)).toBe(true)
  expect(seen.at(-1)).toEqual([size, size])
  expect(await lm.generate(model, "the", { maxTokens: 5 })).toBe(want)
  // A cache without one of them is not complete.
  const [, second] = parts
  rmSync(join(model.source, "..", basename(second.path)))
  await expect(lm.load("tiny/parts", { cacheDir, offline: true })).rejects.toThrow(/not in the cache/)
  const named = await lm.load(`tiny/parts/${second.path}`, { hubUrl, cacheDir })
  expect(named.source).toBe(model.source)
  expect((await lm.load("tiny/parts", { cacheDir, offline: true })).source).toBe(model.source)
  repositories["tiny/parts"] = [...parts.slice(0, 1), ...parts.slice(2), fileOf("a.gguf", readFileSync(made))]
  const gone = "tiny/parts has no Q4/model-00002-of-00003.gguf, one of the 3 parts of a model"
  await expect(lm.load(`tiny/parts/${parts[0].path}`, { hubUrl, cacheDir })).rejects.toThrow(gone)
})
