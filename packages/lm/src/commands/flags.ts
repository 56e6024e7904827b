/**
 * The flags of commands in messages of the library, which name its options.
 */
import type { Command, Option } from "commander"

/** The flag as it was typed, or its long form. */
const typedFlag = ({ short, long }: Option, args: readonly string[]): string => {
  const isTyped = (flag: string | undefined): boolean =>
    flag !== undefined && args.some((arg) => arg === flag || arg.startsWith(`${flag}=`))
  // A short flag may hold its value: -n5.
  const isShort = short !== undefined && args.some((arg) => arg.startsWith(short) && !arg.startsWith("--"))
  return !isTyped(long) && isShort ? short : (long ?? short ?? "")
}

/**
 * A message of the library with the flags of a command in place of options: `maxTokens must be …` → `-n must be …`. Names of one word are
 * replaced only where a message begins with them, since they may be words.
 * @param args - arguments as typed
 */
export function withFlags(message: string, command: Command, args: readonly string[]): string {
  const flags = new Map(command.options.map((option) => [option.attributeName(), typedFlag(option, args)]))
  return message
    .replace(/^[a-z]\w*(?= (?:must|is|has)\b)/, (name) => flags.get(name) ?? name)
    .replace(/\b(?<!-)[a-z]+[A-Z]\w*\b/g, (name) => flags.get(name) ?? name)
}
