import "./methods"
import "./engine/array-members"
import "./reference/reference-backend"

export * from "./public"
