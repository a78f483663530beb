import { rmSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { Glob } from 'bun'

/*
 * `bun run build [file]` makes a single file, dist/tollgate by default, with Bun, the server, its workers, the SQL files
 * and the embedded database inside. It runs on machines of the same kind that have only a C library.
 *
 * All embedded files lie flat in one folder, so workers and PGlite's files are found beside their importers, as in the
 * sources. Only db/migrate.ts looks elsewhere for the SQL.
 */

const root = join(import.meta.dir, '..')
const outfile = resolve(process.argv[2] ?? join(root, 'dist/tollgate'))
process.chdir(root)
rmSync(outfile, { force: true })

/** Files that PGlite reads at run time and that the bundler does not see. */
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
  sourcemap: 'inline', // logged errors name file and line of the sources
  compile: {
    outfile,
    assets: ['sql'],
    // The binary may run in the folder of any project: files there must not change what it does.
    autoloadDotenv: false,
    autoloadBunfig: false,
  },
})
// The maps are inside the binary; the files beside it are not needed.
for (const { kind, path } of outputs) if (kind === 'sourcemap') rmSync(path, { force: true })
process.stdout.write(`built ${outfile}\n`)
