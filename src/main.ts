#!/usr/bin/env bun
import { run } from './cli/run.ts'

// Whatever is written, by the embedded database, SQLite's locks or an import, is for nobody else's eyes.
process.umask(0o077)
process.exitCode = await run(process.argv.slice(2))
