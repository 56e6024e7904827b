import "./methods"
import "./engine/array-members"
import "./reference/reference-backend"
// All that other entries share is one file, with this entry too: it is read once.
import "./backend-api"

export * from "./public"
