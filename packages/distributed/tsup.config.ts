import { library } from "../../tooling/tsup-preset"

export default library()
