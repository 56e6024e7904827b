import { library } from "../../tooling/tsup-preset"

// devDependencies are bundled: npm create installs this package alone.
export default library()
