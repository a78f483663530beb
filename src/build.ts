import { rmSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { Glob } from 'bun'

/*
 * `bun run build [file]` makes one file, dist/tollgate unless named otherwise, with Bun, the server, its workers, the SQL
 * files and the embedded database inside. It runs on machines of the same kind that have nothing but a C library.
 *
 * All it carries lies flat in a folder of its own, so that the sources need not know of it: whoever starts a worker finds
 * it beside itself, as PGlite does its files. Only db/migrate.ts has to look elsewhere for the SQL.
 */

const root = join(import.meta.dir, '..')
const outfile = resolve(process.argv[2] ?? join(root, 'dist/tollgate'))
process.chdir(root)
rmSync(outfile, { force: true })

/** What PGlite reads while it runs and the bundler does not see. */
const databaseFolder = dirname(Bun.resolveSync('@electric-sql/pglite', import.meta.dir))
const databaseFiles = ['pglite.data', 'pglite.wasm', 'initdb.wasm'].map((name) => join(databaseFolder, name))

const { outputs } = await Bun.build({
  entrypoints: ['src/main.ts', ...new Glob('src/**/*.worker.ts').scanSync(), 'database-files.ts'],
  files: {
    'database-files.ts': databaseFiles
      .map(
        (path, index) =>
          `export { default as file${index} } from ${JSON.stringify(path)} with { type: 'file' }`,
      )
      .join('\n'),
  },
  naming: { entry: '[name].[ext]', asset: '[name].[ext]' },
  sourcemap: 'inline', // a logged error names file and line of the sources
  compile: {
    outfile,
    assets: ['sql'],
    // The folder it is called in may be any project's: what lies there must not change what it does.
    autoloadDotenv: false,
    autoloadBunfig: false,
  },
})
// The maps are inside; what is left beside the binary nobody needs.
for (const { kind, path } of outputs) if (kind === 'sourcemap') rmSync(path, { force: true })
process.stdout.write(`built ${outfile}\n`)
