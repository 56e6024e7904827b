/**
 * The bytes of the arrays in .npy and .safetensors files, read in the plainest way: to hold what `load` gives against. A file that is not
 * as plain as this gives null.
 */

/** Arrays' bytes by name. */
export function readPlainly(file: string, bytes: Buffer): ReadonlyMap<string, Buffer> | null {
  if (file.endsWith(".safetensors")) return readSafetensors(bytes)
  return file.endsWith(".npy") ? readNpy(bytes) : null
}

function readSafetensors(bytes: Buffer): Map<string, Buffer> {
  const start = 8 + Number(bytes.readBigUInt64LE())
  const header = JSON.parse(bytes.toString("utf8", 8, start)) as Record<
    string,
    { data_offsets: [number, number] }
  >
  const out = new Map<string, Buffer>()
  for (const name of Object.keys(header)) {
    if (name === "__metadata__") continue
    const [begin, end] = header[name].data_offsets
    out.set(name, bytes.subarray(start + begin, start + end))
  }
  return out
}

function readNpy(bytes: Buffer): Map<string, Buffer> | null {
  const end = 10 + bytes.readUInt16LE(8)
  const text = bytes.toString("latin1", 10, end)
  if (bytes[6] !== 1 || text.includes("'>") || /fortran_order'\s*:\s*True/.test(text)) return null
  return new Map([["", bytes.subarray(end)]])
}
