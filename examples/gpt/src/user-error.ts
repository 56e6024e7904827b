/**
 * An error that the user can put right: wrong options, missing files, a checkpoint of something else. main.ts prints the message alone and
 * exits with code 2; every other error is a defect and keeps its stack.
 */
export class UserError extends Error {
  override name = "UserError"
}
