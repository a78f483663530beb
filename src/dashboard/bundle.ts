import { basename, join } from 'node:path'
import { TOKENS } from '../pages/tokens.ts'

/**
 * The files of the browser's program, under names that change with their content: `entry` is the script of the page,
 * `first` what it and the overview import, which a browser loads with it; the other screens are loaded when they are opened.
 */
export type Bundle = { scripts: BundledFile[]; entry: string; first: string[]; style: BundledFile }
export type BundledFile = { name: string; text: string }

/**
 * Bundles `ui/` with Bun. A server that runs from its sources does it at the first request; `build.ts` does it for the
 * binary. Nothing built is kept on disk.
 * @throws Error when the sources cannot be bundled.
 */
export async function makeBundle(): Promise<Bundle> {
  const folder = join(import.meta.dir, 'ui')
  const { outputs, metafile } = await Bun.build({
    entrypoints: [join(folder, 'main.tsx')],
    target: 'browser',
    minify: true,
    splitting: true,
    metafile: true,
    naming: { entry: '[name]-[hash].[ext]', chunk: '[name]-[hash].[ext]' },
    define: { 'process.env.NODE_ENV': '"production"' },
  })
  const scripts = await Promise.all(
    outputs.map(async (output) => ({ name: basename(output.path), text: await output.text() })),
  )
  const entry = outputs.find(({ kind }) => kind === 'entry-point')
  if (entry === undefined || metafile === undefined) throw new Error('the dashboard cannot be bundled')
  const importsOf = (name: string) => metafile.outputs[`./${name}`]?.imports ?? []
  const first = new Set([basename(entry.path)])
  const overview = importsOf(basename(entry.path)).find(({ path }) => basename(path).startsWith('overview-'))
  if (overview !== undefined) first.add(basename(overview.path))
  // A set is walked with what is added to it meanwhile.
  for (const name of first)
    for (const { path, kind } of importsOf(name)) if (kind === 'import-statement') first.add(basename(path))
  const style = squeezed(TOKENS + (await Bun.file(join(folder, 'style.css')).text()))
  return {
    scripts,
    entry: basename(entry.path),
    first: [...first].slice(1),
    style: {
      name: `style-${new Bun.CryptoHasher('sha256').update(style).digest('hex').slice(0, 16)}.css`,
      text: style,
    },
  }
}

/** Not Bun's minifier: it turns `light-dark()` into a query of the system's theme, which the switch could not override. */
const squeezed = (css: string): string =>
  css
    .replaceAll(/\/\*[\s\S]*?\*\//g, '')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/ ?([{};,]) ?/g, '$1')
    .trim()
