import { program } from "../../tooling/tsup-preset"

export default program("main")
