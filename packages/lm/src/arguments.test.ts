/** Wrong arguments of the library are errors that say what was expected. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import * as nn from "@lazuli/nn"
import { afterAll, beforeAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../test/checkpoints"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-arguments-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const folder = writeCheckpoint("llama", join(scratch, "llama"))
let model: lm.LoadedModel
beforeAll(async () => {
  model = await lm.load(folder)
})

test.each([undefined, null, 3, [null], [1, "a"], [{ role: "user" }], [{ role: "user", content: 3 }]])(
  "the prompt %j is neither a text, tokens nor a conversation",
  async (prompt) => {
    const reason =
      /the prompt must be a text, token ids, or messages with a role and a text as content, received/
    await expect(lm.generate(model, prompt as never)).rejects.toThrow(reason)
    expect(() => new lm.Batcher(model).stream(prompt as never)).toThrow(reason)
  },
)

test.each([
  [[], {}, /the prompt has no tokens/],
  ["the", { stop: 5 }, /stop must be a string or a list of strings/],
  ["the", { max_tokens: 5 }, /\[stream\] has no option "max_tokens"; .* Did you mean "maxTokens"\?/],
  ["the", { stop: "" }, /stop must be a string or a list of strings, none of them empty/],
  ["the", { signal: {} }, /\[stream\] signal must be an AbortSignal, received a plain object/],
  [
    "the",
    { draft: "small" },
    /\[stream\] draft must be one that load or fromConfig made, received the string "small"/,
  ],
  ["the", { stop: ["a", 5] }, /stop must be a string or a list of strings/],
  ["the", { maxCacheBytes: Number.NaN }, /maxCacheBytes must be a non-negative number/],
] as const)("generate(%j, %j) is rejected", async (prompt, options, reason) => {
  await expect(lm.generate(model, prompt, options as never)).rejects.toThrow(reason)
  expect(() => new lm.Batcher(model).stream(prompt, options as never)).toThrow(reason)
})

test("functions of the library refuse options of other names", async () => {
  const wrong = { nope: 1 } as never
  const refused = (op: string) => `[${op}] has no option "nope"`
  await expect(lm.load(folder, wrong)).rejects.toThrow(refused("load"))
  await expect(lm.embed(model, ["a"], wrong)).rejects.toThrow(refused("embed"))
  await expect(lm.train(model.network as never, [], wrong)).rejects.toThrow(refused("train"))
  expect(() => lm.makeCache(model.network as never, wrong)).toThrow(refused("makeCache"))
  expect(() => lm.quantize(model, wrong)).toThrow(refused("quantize"))
  expect(() => lm.save(model, join(scratch, "none"), wrong)).toThrow(refused("save"))
  expect(() => lm.readDataset("none", model.tokenizer!, wrong)).toThrow(refused("readDataset"))
  expect(() => lm.addAdapters(model.network, wrong)).toThrow(refused("addAdapters"))
  expect(() => new lm.Batcher(model, wrong)).toThrow(refused("batch"))
  expect(() => lm.createServer(model, wrong)).toThrow(refused("createServer"))
})

test("a model that was not awaited is named", async () => {
  const later = lm.load(folder) as never
  const refused = (op: string) =>
    `[${op}] the model must be one that load or fromConfig made, received a promise. Await it first`
  await expect(lm.generate(later, "the")).rejects.toThrow(refused("stream"))
  await expect(lm.embed(later, ["the"])).rejects.toThrow(refused("embed"))
  await expect(lm.rerank(later, "the", ["the"])).rejects.toThrow(refused("rerank"))
  expect(() => lm.quantize(later)).toThrow(refused("quantize"))
  expect(() => lm.save(later, join(scratch, "none"))).toThrow(refused("save"))
  expect(() => new lm.Batcher(later)).toThrow(refused("batch"))
  expect(() => lm.createServer(later)).toThrow(refused("createServer"))
  await expect(lm.generate(undefined as never, "the")).rejects.toThrow("received nothing")
})

test("a batch's requests share its options", () => {
  const batch = new lm.Batcher(model, { pageTokens: 16 })
  expect(() => batch.stream("the", { pageTokens: 8 })).toThrow(
    "[batch] all requests share one pageTokens. Pass it",
  )
  expect(() => batch.stream("the", { onPrefill: () => {} })).toThrow("[batch] onPrefill is not supported")
  expect(() => batch.stream("the", { pageTokens: 16 })).not.toThrow()
  expect(() => batch.stream("the", { prefillStep: 512 })).toThrow("all requests share one prefillStep")
  expect(() => batch.stream("the", { compile: false })).toThrow("all requests share one compile")
  const defaults = { prefillStep: 256, compile: true, maxCacheBytes: Infinity }
  expect(() => batch.stream("the", defaults)).not.toThrow()
  batch.close()
})

test("a model made by fromConfig is one", async () => {
  const { config } = model
  expect(await lm.generate(lm.fromConfig(config.values), [1, 2, 3], { maxTokens: 1 })).toBe("")
})

test("a cache must have the model's layers", async () => {
  const other = await lm.load(writeCheckpoint("gemma3", join(scratch, "gemma3")))
  const cache = lm.makeCache(other.network as lm.CausalNetwork)
  await expect(lm.generate(model, "the", { cache })).rejects.toThrow(
    /the cache has 3 layers, and the model 2/,
  )
})

test("a tiny temperature is greedy", async () => {
  const greedy = await lm.generate(model, "the", { maxTokens: 12 })
  for (const temperature of [1e-300, 1e-45, 1e-7])
    expect(await lm.generate(model, "the", { maxTokens: 12, temperature })).toBe(greedy)
})

test("load, save, embed, rerank and addAdapters reject options that they would misread", async () => {
  await expect(lm.load(folder, { dtype: mx.int32 })).rejects.toThrow(/dtype must be a floating-point dtype/)
  await expect(lm.load(folder, { activations: "int4" as never })).rejects.toThrow(/exact or int8, received/)
  expect(() => lm.save(model, "")).toThrow(/expected a folder or a .gguf file/)
  expect(() => lm.save(model, join(scratch, "x.gguf"), { type: "Q9" as never })).toThrow(
    /type must be one of F32, F16, .*received the string "Q9"/,
  )
  await expect(lm.embed(model, "the" as never)).rejects.toThrow(/expected a list of texts/)
  await expect(lm.embed(model, ["the"], { pooling: "max" as never })).rejects.toThrow(/pooling must be mean/)
  await expect(lm.rerank(model, "a", "the" as never)).rejects.toThrow(/expected a list of texts/)
  for (const [name, value] of [
    ["rank", 0],
    ["rank", 1.5],
    ["layers", 0],
  ] as const)
    expect(() => lm.addAdapters(model.network, { [name]: value })).toThrow(
      new RegExp(`${name} must be a positive integer`),
    )
  expect(() => lm.quantize(model, { groupSize: 7 })).toThrow(
    /mode affine has groupSize 16, 32, 64, 128, received the number 7/,
  )
  expect(() => lm.addAdapters(model.network, { scale: Number.NaN })).toThrow(/scale must be a finite number/)
})

test("a wrong argument is named, with what was expected and received", async () => {
  const network = model.network as lm.CausalNetwork
  const adapted = (await lm.load(folder)).network as lm.CausalNetwork
  lm.addAdapters(adapted)
  const reranker = await lm.load(writeCheckpoint("bert-reranker", join(scratch, "reranker")))
  const tokenizer = model.tokenizer!
  const place = join(scratch, "place")
  const one = [{ tokens: [1, 2], from: 1 }]
  // Programs without types pass anything.
  const untyped = lm as unknown as Record<string, (...args: unknown[]) => unknown>
  const {
    train,
    evaluate,
    rerank,
    registerFamily,
    save,
    quantize,
    addAdapters,
    fuseAdapters,
    saveAdapters,
    loadAdapters,
    readDataset,
    makeCache,
    cacheBytes,
    cacheLength,
    savePromptCache,
    ropeOf,
    shardModel,
    fromConfig,
    load,
    embed,
    generate,
    createServer,
  } = untyped
  const made =
    (type: unknown) =>
    (...args: unknown[]): unknown =>
      new (type as new (...args: unknown[]) => unknown)(...args)
  const calls: [() => unknown, string][] = [
    [
      () => train(model, one, { steps: 1 }),
      "[train] the network must be the network of a model, received a plain object. Pass the model's network",
    ],
    [
      () => train(reranker.network, one, { steps: 1 }),
      "[train] the network must be one that generates text, received a value of type Bert",
    ],
    [
      () => train(adapted, "data.jsonl", { steps: 1 }),
      '[train] examples must be a list, received the string "data.jsonl". readDataset reads them',
    ],
    [
      () => train(adapted, ["a"], { steps: 1 }),
      "[train] examples[0].tokens must be a list of token ids, received nothing",
    ],
    [
      () => train(adapted, [{ tokens: [1.5, 2], from: 1 }], { steps: 1 }),
      "[train] examples[0].tokens must be a list of token ids",
    ],
    [
      () => train(adapted, [{ tokens: [1, 2] }], { steps: 1 }),
      "[train] examples[0].from must be an integer, received nothing",
    ],
    [
      () => train(adapted, [{ tokens: [1], from: 1 }], { steps: 1 }),
      "[train] examples[0] has fewer than two tokens",
    ],
    [
      () => train(adapted, [{ tokens: [1, 288], from: 1 }], { steps: 1 }),
      "[train] examples[0]: the vocabulary of 288 has no token 288",
    ],
    [() => train(adapted, one, {}), "[train] steps must be a positive integer, received nothing"],
    [
      () => train(adapted, one, { steps: 1, learningRate: "1e-3" }),
      '[train] learningRate must be a non-negative number, received the string "1e-3"',
    ],
    [
      () => train(adapted, one, { steps: 1, seed: 1.5 }),
      "[train] seed must be an integer, received the number 1.5",
    ],
    [
      () => train(adapted, one, { steps: 1, state: 3 }),
      "[train] state must be a string that is not empty, received the number 3",
    ],
    [
      () => train(adapted, one, { steps: 1, onStep: 3 }),
      "[train] onStep must be a function, received the number 3",
    ],
    [() => evaluate(model, one), "[evaluate] the network must be the network of a model"],
    [() => evaluate(network, "x"), "[evaluate] examples must be a list"],
    [
      () => evaluate(network, [null]),
      "[evaluate] examples[0].tokens must be a list of token ids, received nothing",
    ],
    [
      () => evaluate(network, one, 0.5),
      "[evaluate] batchSize must be a positive integer, received the number 0.5",
    ],
    [
      () => evaluate(network, one, { batchSize: 4 }),
      "[evaluate] batchSize must be a positive integer, received a plain object",
    ],
    [() => rerank(reranker, undefined, ["a"]), "[rerank] the query must be a string, received nothing"],
    [() => rerank(reranker, "a", ["a", 3]), "[rerank] text 1 must be a string, received the number 3"],
    [
      () => registerFamily(),
      "[registerFamily] a family must be an object, received nothing. It has modelTypes and make",
    ],
    [
      () => registerFamily({ modelTypes: "mine", make: () => 0 }),
      '[registerFamily] modelTypes must be a list of strings, received the string "mine"',
    ],
    [
      () => registerFamily({ modelTypes: [""], make: () => 0 }),
      "[registerFamily] modelTypes must name at least one model_type",
    ],
    [
      () => registerFamily({ modelTypes: ["mine"] }),
      "[registerFamily] make must be a function, received nothing",
    ],
    [
      () => registerFamily({ modelTypes: ["mine"], make: () => 0, sanitize: 3 }),
      "[registerFamily] sanitize must be a function",
    ],
    [
      () => save(model, place, { maxShardBytes: "5GB" }),
      '[save] maxShardBytes must be a positive number, received the string "5GB"',
    ],
    [
      () => save(model, place, { maxShardBytes: "5" }),
      '[save] maxShardBytes must be a positive number, received the string "5"',
    ],
    [
      () => save(model, place, { maxShardBytes: Number.NaN }),
      "[save] maxShardBytes must be a positive number, received the number NaN",
    ],
    [
      () => save(model, `${place}.gguf`, { maxShardBytes: 5 }),
      "[save] maxShardBytes is only supported for folders",
    ],
    [() => save(model, place, { onProgress: 3 }), "[save] onProgress must be a function"],
    [() => quantize(model, { choose: 3 }), "[quantize] choose must be a function"],
    [
      () => addAdapters(adapted),
      "[addAdapters] the network has adapters. Pass all keys in one call, or fuse the adapters first",
    ],
    [() => addAdapters(adapted, { keys: ["o_proj"] }), "[addAdapters] the network has adapters"],
    [() => addAdapters(model), "[addAdapters] the network must be the network of a model"],
    [() => addAdapters(network, { keys: "q_proj" }), "[addAdapters] keys must be a list of strings"],
    [() => addAdapters(network, { dropout: "0.1" }), "[addAdapters] dropout must be a number in [0, 1)"],
    [() => fuseAdapters(model), "[fuseAdapters] the network must be"],
    [() => fuseAdapters(adapted, { requantise: true }), '[fuseAdapters] has no option "requantise"'],
    [() => saveAdapters(model, place), "[saveAdapters] the network must be"],
    [
      () => saveAdapters(adapted),
      "[saveAdapters] the folder must be a string that is not empty, received nothing",
    ],
    [
      () => saveAdapters(adapted, place, "hf"),
      '[saveAdapters] the form must be mlx or peft, received the string "hf"',
    ],
    [() => loadAdapters(model, place), "[loadAdapters] the network must be"],
    [() => loadAdapters(network, 3), "[loadAdapters] the folder must be a string"],
    [() => readDataset(3, tokenizer), "[readDataset] the file must be a string"],
    [
      () => readDataset("none", model),
      "[readDataset] the tokenizer must be a Tokenizer, received a plain object. Pass the model's tokenizer",
    ],
    [() => makeCache(model), "[makeCache] the network must be the network of a model"],
    [
      () => makeCache(network, { cacheBits: 8, cacheGroupSize: 0 }),
      "[makeCache] cacheGroupSize must be a positive integer, received the number 0",
    ],
    [
      () => makeCache(network, { maxCacheBytes: "a" }),
      "[makeCache] maxCacheBytes must be a non-negative number",
    ],
    [
      () => cacheBytes(3),
      "[cacheBytes] the cache must be one that makeCache or loadPromptCache made, received the number 3",
    ],
    [() => cacheLength([3]), "[cacheLength] the cache must be one that makeCache"],
    [() => savePromptCache(place, undefined, [1]), "[savePromptCache] the cache must be"],
    [
      () => savePromptCache(place, lm.makeCache(network)),
      "[savePromptCache] tokens must be a list of token ids, received nothing",
    ],
    [
      () => made(lm.PrefixStore)(Number.NaN),
      "[PrefixStore] maxBytes must be a non-negative number, received the number NaN",
    ],
    [() => new lm.PrefixStore(9).find("a" as never), "[PrefixStore.find] tokens must be a list of token ids"],
    [() => new lm.PrefixStore(9).add([1], 3 as never), "[PrefixStore.add] the cache must be"],
    [() => made(lm.Settings)("llama"), '[Settings] values must be an object, received the string "llama"'],
    [() => ropeOf({}, { headDim: 4 }), "[ropeOf] the config must be Settings, received a plain object"],
    [() => ropeOf(model.config), "[ropeOf] options must be an object with headDim"],
    [() => ropeOf(model.config, { headDim: "a" }), "[ropeOf] headDim must be a positive integer"],
    [() => shardModel(model), "[shardModel] the network must be"],
    [() => shardModel(network, { groop: 3 }), '[shardModel] has no option "groop"'],
    [
      () => made(lm.Detokenizer)(model),
      "[Detokenizer] the tokenizer must be a Tokenizer, received a plain object. Pass the model's tokenizer",
    ],
    [
      () => made(lm.Tokenizer)(),
      "[Tokenizer] the files must be an object, received nothing. They are { tokenizer, config }",
    ],
    [() => made(lm.Decoder)(), "[Decoder] the plan must be an object, received nothing"],
    [
      () => tokenizer.encode(3 as never),
      "[Tokenizer.encode] the text must be a string, received the number 3",
    ],
    [() => tokenizer.encodePair("a", 3 as never), "[Tokenizer.encodePair] the second text must be a string"],
    [
      () => tokenizer.decode("a" as never),
      '[Tokenizer.decode] tokens must be a list of token ids, received the string "a"',
    ],
    [() => tokenizer.prompt([3] as never), "[Tokenizer.prompt] the conversation must be a list of messages"],
    [
      () => made(lm.LoraLinear)(),
      "[LoraLinear] the layer must be an nn.Linear or nn.QuantizedLinear, received nothing",
    ],
    [
      () => made(lm.LoraLinear)(new nn.Linear(4, 4), 0, 1),
      "[LoraLinear] rank must be a positive integer, received the number 0",
    ],
    [() => fromConfig(), "[fromConfig] the config must be an object, received nothing"],
    [
      () => fromConfig(model.config.values, "float16"),
      '[fromConfig] dtype must be a floating-point dtype, received the string "float16"',
    ],
    [() => load(folder, { onProgress: 3 }), "[load] onProgress must be a function"],
    [() => load(folder, { revision: 3 }), "[load] revision must be a string, received the number 3"],
    [() => load(folder, { offline: "no" }), '[load] offline must be true or false, received the string "no"'],
    [() => embed(model, ["a"], { normalize: "no" }), "[embed] normalize must be true or false"],
    [() => generate(model, "a", { ignoreEos: "no" }), "[stream] ignoreEos must be true or false"],
    [() => generate(model, "a", { onPrefill: 3 }), "[stream] onPrefill must be a function"],
    [
      () => generate(model, "a", { cache: 3 }),
      "[stream] cache must be one that makeCache or loadPromptCache made",
    ],
    [() => generate(model, "a", { compile: "no" }), "[stream] compile must be true or false"],
    [
      () => generate(model, "a", { logitBias: 5 }),
      "[stream] logitBias must be an object, received the number 5",
    ],
    [() => made(lm.Batcher)(model, { exact: "no" }), "[batch] exact must be true or false"],
    [() => createServer(model, { name: 3 }), "[createServer] name must be a string"],
    [() => createServer(model, { onError: 3 }), "[createServer] onError must be a function"],
    [
      () => lm.createServer(model).listen("a" as never),
      '[listen] port must be an integer from 0 to 65535, received the string "a"',
    ],
  ]
  for (const [call, reason] of calls)
    await expect((async () => call())(), `${call}`).rejects.toThrow(
      expect.objectContaining({ name: "ArgumentError", message: expect.stringContaining(reason) }),
    )
  lm.registerFamily({ modelTypes: ["none-of-these"], make: () => undefined as never })
  expect(() => lm.fromConfig({ model_type: "none-of-these" })).toThrow(
    '[load] what make of the family "none-of-these" returns must be a CausalNetwork or an EncoderNetwork, received nothing',
  )
})

test("an invalid tokenizer is named with the reason", () => {
  const files = model.tokenizer!.files
  expect(() => new lm.Tokenizer({ ...files, tokenizer: { model: 3 } })).toThrow(
    /tokenizer.json is invalid: \w/,
  )
})
