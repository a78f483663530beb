import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Json } from '../support/server.ts'

export const DEPLOY = join(import.meta.dir, '../../deploy')
const KUBERNETES = join(DEPLOY, 'kubernetes')

/** The objects of a text of YAML. */
const objectsOf = (text: string): Json[] => [Bun.YAML.parse(text)].flat()

/** The objects of the base, as its files are. */
export function baseObjects(): Json[] {
  const folder = join(KUBERNETES, 'base')
  return readdirSync(folder)
    .filter((name) => name !== 'kustomization.yaml')
    .flatMap((name) => objectsOf(readFileSync(join(folder, name), 'utf8')))
}

export const ofKind = (objects: readonly Json[], kind: string): Json => {
  const found = objects.filter((object) => object.kind === kind)
  if (found.length !== 1) throw new Error(`there are ${found.length} objects of kind ${kind}`)
  return found[0]
}

/** A kustomize that knows components; null = there is none. kubectl has one since 1.21. */
export const KUSTOMIZE: readonly string[] | null =
  [
    ['kustomize', 'build'],
    ['kubectl', 'kustomize'],
  ].find(
    ([program = '', word = '']) =>
      Bun.which(program) !== null &&
      Bun.spawnSync([program, word, join(KUBERNETES, 'overlays/embedded')]).exitCode === 0,
  ) ?? null

/**
 * The objects that a `kustomization.yaml` makes in a folder that holds a copy of deploy/kubernetes as `tollgate`.
 * @throws Error with what kustomize says.
 */
export function rendered(kustomization: string): Json[] {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-kustomize-'))
  try {
    cpSync(KUBERNETES, join(folder, 'tollgate'), { recursive: true })
    writeFileSync(join(folder, 'kustomization.yaml'), kustomization)
    const made = Bun.spawnSync([...(KUSTOMIZE ?? []), folder])
    // A warning is a deprecated field: it would fail one day.
    if (made.exitCode !== 0 || made.stderr.length > 0) throw new Error(made.stderr.toString())
    return objectsOf(made.stdout.toString())
  } finally {
    rmSync(folder, { recursive: true })
  }
}
