/**
 * Text for tests: sentences of a small grammar, the same for the same seed. A model that learns beats a bigram on it easily, because the
 * verb agrees with a subject that is many bytes away.
 */
const SUBJECTS = ["the cat", "the cats", "a small dog", "two small dogs", "the old river", "many old rivers"]
const VERBS = [
  ["sees", "finds", "follows"],
  ["see", "find", "follow"],
]
const OBJECTS = ["the moon", "a stone", "the quiet road", "some water"]

/** At least `bytes` bytes of sentences. */
export function generatedText(bytes: number, seed = 1): Uint8Array {
  let state = seed
  const pick = <T>(list: readonly T[]): T => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0
    return list[(state >>> 16) % list.length]
  }
  let text = ""
  while (text.length < bytes) {
    const subject = pick(SUBJECTS)
    text += `${subject} ${pick(VERBS[SUBJECTS.indexOf(subject) % 2])} ${pick(OBJECTS)}.\n`
  }
  return Buffer.from(text)
}
