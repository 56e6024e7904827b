import { library } from "../../tooling/tsup-preset"

// Bundled into index, the namespace `mx` would become a copied object whose types are lost.
export default library({ external: ["./mx.js"] })
