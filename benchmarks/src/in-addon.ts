/** The time in the addon so far, where native-time.ts counts it; 0 otherwise. */
export const inAddon = { ms: 0 }
