/**
 * The system that this process runs on, as far as packages with binaries depend on it.
 */

/** As the names of packages with binaries end: `linux-x64`. */
export const PLATFORM = `${process.platform}-${process.arch}`

/** True on Linux with another C library than glibc, such as Alpine's musl, which no package is for. */
function lacksGlibc(): boolean {
  if (process.platform !== "linux" || !process.report) return false
  const { header } = process.report.getReport() as { header?: object }
  return header !== undefined && !("glibcVersionRuntime" in header)
}

/** The cure where a package's binary could not be loaded. */
export function binaryCure(): string {
  const install = lacksGlibc()
    ? "Published binaries need glibc, which this system lacks (Alpine has musl): use one that has it, such as Debian (the image node:slim)"
    : "Install with optional dependencies (without --omit=optional) on the system that runs it"
  return `${install}, or build from source: npm run build in a clone of the repository`
}
