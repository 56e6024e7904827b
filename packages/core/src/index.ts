import "./methods"
import "./array-members"
import "./reference-backend"

export * from "./public"
