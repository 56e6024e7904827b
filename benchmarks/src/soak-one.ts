/** One soak, in a process of its own: `node soak-one.js '{"size":"tiny","mode":"eager","wait":"item","steps":1000}' SAMPLES`. */
import { soak } from "./soak-steps"

const tell = (line: unknown): void => console.log(JSON.stringify(line))
const what = JSON.parse(process.argv[2])
tell({ settled: await soak(what, Number(process.argv[3]), (sample) => tell({ sample })) })
