#!/usr/bin/env bun
import { runCommand } from './cli/commands.ts'

// Whatever is written, by the embedded database, SQLite's locks or an import, is for nobody else's eyes.
process.umask(0o077)
await runCommand(process.argv.slice(2))
