// Writes docs/ops.md. Part of `npm run generate`.

import { writeFileSync } from "node:fs"
import { opsPage } from "./ops-page"

writeFileSync("docs/ops.md", opsPage("."))
