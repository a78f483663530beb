import { expect, test } from 'bun:test'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { ROOT } from '../docs/blocks.ts'

/** Otherwise Bun collects everything ten seconds into a load: see `src/doors/http/young-garbage.ts`. */
test('`bun run start`, the image and the unit set the same idle time for Bun’s collector, unless it is set already', () => {
  const [, ofImage] = /^ENV .*\bBUN_IDLE_GC_SECONDS=(\d+)$/m.exec(textOf('Dockerfile')) ?? []
  const unit = textOf('deploy/systemd/tollgate.service')
  const [, ofUnit] = /^Environment=.* BUN_IDLE_GC_SECONDS=(\d+)$/m.exec(unit) ?? []
  expect(ofImage).toBe('300')
  expect(ofUnit).toBe('300')
  expect(startedWith({})).toBe('300 src/main.ts serve\n')
  expect(startedWith({ BUN_IDLE_GC_SECONDS: '7' })).toBe('7 src/main.ts serve\n')
  expect(startedWith({ BUN_IDLE_GC_SECONDS: '0' })).toBe('0 src/main.ts serve\n')
})

const textOf = (path: string) => readFileSync(join(ROOT, path), 'utf8')

/** The environment that the script gives to Bun, printed by a program in Bun's place. */
function startedWith(env: Record<string, string>): string {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-script-'))
  try {
    const program = join(folder, 'bun')
    writeFileSync(program, '#!/bin/sh\necho "$BUN_IDLE_GC_SECONDS $*"\n')
    chmodSync(program, 0o755)
    const started = Bun.spawnSync(['/bin/sh', '-c', packageJson.scripts.start], {
      env: { PATH: folder, ...env },
    })
    return started.stdout.toString()
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
