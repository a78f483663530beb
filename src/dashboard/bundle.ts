import { join } from 'node:path'
import { TOKENS } from '../pages/tokens.ts'

/** The files of the browser's program, named by their content. */
export type Bundle = { script: BundledFile; style: BundledFile }
export type BundledFile = { name: string; text: string }

/**
 * Bundles `ui/` with Bun. A server that runs from its sources does it at the first request; `build.ts` does it for the
 * binary. Nothing built is kept on disk.
 * @throws Error when the sources cannot be bundled.
 */
export async function makeBundle(): Promise<Bundle> {
  const folder = join(import.meta.dir, 'ui')
  const { outputs } = await Bun.build({
    entrypoints: [join(folder, 'main.tsx')],
    target: 'browser',
    minify: true,
    define: { 'process.env.NODE_ENV': '"production"' },
  })
  const script = await outputs[0]?.text()
  if (script === undefined) throw new Error('the dashboard cannot be bundled')
  const style = squeezed(TOKENS + (await Bun.file(join(folder, 'style.css')).text()))
  return { script: named('main', script, 'js'), style: named('style', style, 'css') }
}

const named = (name: string, text: string, ending: string): BundledFile => ({
  name: `${name}-${new Bun.CryptoHasher('sha256').update(text).digest('hex').slice(0, 16)}.${ending}`,
  text,
})

/** Not Bun's minifier: it turns `light-dark()` into a query of the system's theme, which the switch could not override. */
const squeezed = (css: string): string =>
  css
    .replaceAll(/\/\*[\s\S]*?\*\//g, '')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/ ?([{};,]) ?/g, '$1')
    .trim()
