#!/usr/bin/env bun
import { run } from './cli/run.ts'

// Files of the embedded database, of SQLite's locks and of imports must be readable by the owner only.
process.umask(0o077)
process.exitCode = await run(process.argv.slice(2))
