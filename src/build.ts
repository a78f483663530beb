import { rmSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { type BunPlugin, Glob } from 'bun'
import { makeBundle } from './dashboard/bundle.ts'
import { commitOf } from './lib/git-commit.ts'

/*
 * `bun run build [file]` makes a single file, dist/tollgate by default, with Bun, the server, its workers, the SQL files,
 * the dashboard and the embedded database inside. It runs on machines of the same kind that have only a C library. The same sources and
 * commit give the same bytes in every folder.
 *
 * `--target bun-linux-arm64` builds for another kind of machine, on the Bun in the file `--runtime`. `--commit` names the
 * commit where there is no clone.
 *
 * All embedded files lie flat in one folder, so workers and PGlite's files are found beside their importers, as in the
 * sources. Only db/migrate.ts looks elsewhere for the SQL.
 */

const { values: asked, positionals } = parseArgs({
  args: process.argv.slice(2),
  options: { target: { type: 'string' }, runtime: { type: 'string' }, commit: { type: 'string' } },
  allowPositionals: true,
})
const TARGETS = [
  'bun-linux-x64',
  'bun-linux-arm64',
  'bun-linux-x64-musl',
  'bun-linux-arm64-musl',
  'bun-darwin-arm64',
  'bun-darwin-x64',
] as const satisfies Bun.Build.CompileTarget[]
const target = TARGETS.find((each) => each === asked.target)
if (asked.target !== undefined && target === undefined) {
  process.stderr.write(`--target is ${asked.target}; it must be ${TARGETS.join(', ')}\n`)
  process.exit(2)
}
const root = join(import.meta.dir, '..')
const outfile = resolve(positionals[0] ?? join(root, 'dist/tollgate'))
const executablePath = asked.runtime === undefined ? undefined : resolve(asked.runtime)
process.chdir(root)
rmSync(outfile, { force: true })

/** Files that PGlite reads at run time and that the bundler does not see. */
const databaseFolder = dirname(Bun.resolveSync('@electric-sql/pglite', import.meta.dir))
const databaseFiles = ['pglite.data', 'pglite.wasm', 'initdb.wasm'].map((name) => join(databaseFolder, name))

/**
 * msgpackr looks for a native addon in the folder of the build and would write that folder into the binary. Without the
 * addon it decodes in JavaScript, as it does everywhere but on the machine of the build.
 */
const withoutAddon: BunPlugin = {
  name: 'msgpackr without its native addon',
  setup(build) {
    build.onResolve({ filter: /^msgpackr-extract$/ }, ({ path }) => ({ path, namespace: 'absent' }))
    build.onLoad({ filter: /.*/, namespace: 'absent' }, () => ({
      contents: 'module.exports = null',
      loader: 'js',
    }))
  },
}

/** The only module that asks for its folder: for errors, of which it cuts its own lines. The folder of the build would be written into the binary. */
const withoutFolder: BunPlugin = {
  name: 'ioredis without the folder of the build',
  setup(build) {
    build.onLoad({ filter: /[/\\]ioredis[/\\]built[/\\]Command\.js$/ }, async ({ path }) => ({
      contents: (await Bun.file(path).text()).replace('__dirname', '"/ioredis/built"'),
      loader: 'js',
    }))
  },
}

// Before the build: one that waits for another never ends.
const bundle = await makeBundle()

/** Puts the bundle in place of the null in the sources, with which a server bundles the dashboard itself. */
const withDashboard: BunPlugin = {
  name: 'the bundled dashboard',
  setup(build) {
    build.onLoad({ filter: /[/\\]dashboard[/\\]bundled\.ts$/ }, () => ({
      contents: `export const BUNDLED = ${JSON.stringify(bundle)}`,
      loader: 'ts',
    }))
  },
}

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
  plugins: [withoutAddon, withoutFolder, withDashboard],
  define: { TOLLGATE_COMMIT: JSON.stringify(asked.commit || (commitOf(root) ?? 'unknown')) },
  sourcemap: 'inline', // logged errors name file and line of the sources
  compile: {
    outfile,
    ...(target !== undefined && { target }),
    ...(executablePath !== undefined && { executablePath }),
    assets: ['sql'],
    // The binary may run in the folder of any project: files there must not change what it does.
    autoloadDotenv: false,
    autoloadBunfig: false,
  },
})
// The maps are inside the binary; the files beside it are not needed.
for (const { kind, path } of outputs) if (kind === 'sourcemap') rmSync(path, { force: true })
process.stdout.write(`built ${outfile}\n`)
