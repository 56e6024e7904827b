/** An error that the user can put right: its message alone is printed, and the program exits with code 2. */
export class UserError extends Error {
  override name = "UserError"
}
