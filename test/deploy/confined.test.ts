import { expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PATIENT } from '../docs/blocks.ts'
import { copyEmbedded } from '../support/database.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { SLOW_MS } from '../support/timeout.ts'

/*
 * What the files in deploy/ take from the server, taken by the kernel without a container engine: the binary as user 65532
 * without capabilities, on read-only file systems but for its data directory, in a network of its own with nothing in it.
 */
setDefaultTimeout(SLOW_MS)

const root = join(import.meta.dir, '../..')
const USER = 65_532

const missing = ['unshare', 'nsenter', 'setpriv', 'mount', 'ip'].filter((name) => Bun.which(name) === null)
const whyNot = !IS_NIGHTLY
  ? 'it takes a minute: bun run nightly has it'
  : process.getuid?.() !== 0
    ? 'only root can make namespaces of networks'
    : missing.length > 0
      ? `${missing.join(', ')} not installed`
      : Bun.spawnSync(['unshare', '--net', '--mount', 'mount', '--make-rprivate', '/']).exitCode !== 0
        ? 'namespaces are not permitted here'
        : null

/** Runs its arguments where all is read-only but $1, and nobody can be reached. */
const CONFINE = `
set -e
data=$1
shift
mount --make-rprivate /
mount --bind "$data" "$data"
while read -r _ target _; do
  case "$target" in
    /proc* | "$data") ;;
    *) mount -o remount,bind,ro "$target" 2>/dev/null || true ;;
  esac
done < <(tac /proc/self/mounts)
ip link set lo up
exec "$@"`
const WITHOUT_RIGHTS = [
  'setpriv',
  `--reuid=${USER}`,
  `--regid=${USER}`,
  '--clear-groups',
  '--bounding-set=-all',
  '--inh-caps=-all',
  '--no-new-privs',
]

test.skipIf(whyNot !== null)(
  `without rights, files or a network the embedded server starts, limits and stops clean${whyNot === null ? '' : ` (skipped: ${whyNot})`}`,
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-confined-'))
    const data = join(folder, 'data')
    const program = join(folder, 'tollgate')
    const run = (...words: string[]) => {
      const { exitCode, stdout, stderr } = Bun.spawnSync(words, {
        cwd: root,
        env: { PATH: process.env.PATH },
      })
      return { code: exitCode, out: stdout.toString(), err: stderr.toString() }
    }
    let server: Bun.Subprocess<'ignore', 'pipe', 'pipe'> | null = null
    try {
      expect(run(process.execPath, 'run', 'build', program)).toMatchObject({ code: 0 })
      await copyEmbedded(data) // a first start takes seconds
      expect(run('chown', '-R', `${USER}:${USER}`, data)).toMatchObject({ code: 0 })
      expect(run('chmod', '755', folder, program)).toMatchObject({ code: 0 })

      server = Bun.spawn(
        [
          'unshare',
          '--net',
          '--mount',
          'bash',
          '-c',
          CONFINE,
          'bash',
          data,
          ...WITHOUT_RIGHTS,
          program,
          'serve',
        ],
        {
          cwd: '/',
          env: { PATH: process.env.PATH, TOLLGATE_DATA_DIR: data, ...PATIENT },
          stdin: 'ignore',
          stdout: 'pipe',
          stderr: 'pipe',
        },
      )
      const { pid } = server
      let output = ''
      let isAsked = false
      for await (const chunk of server.stdout) {
        output += new TextDecoder().decode(chunk)
        if (isAsked || !/^Tollgate listens on /m.test(output)) continue
        isAsked = true
        const inside = (...words: string[]) =>
          run('nsenter', '--target', String(pid), '--net', '--mount', ...words)

        // It is as confined as this test says.
        const status = readFileSync(`/proc/${pid}/status`, 'utf8')
        expect(
          [/^Uid:\s+(\d+)/m, /^CapEff:\s+(\w+)/m, /^CapBnd:\s+(\w+)/m, /^NoNewPrivs:\s+(\d)/m].map(
            (field) => field.exec(status)?.[1],
          ),
        ).toEqual([String(USER), '0'.repeat(16), '0'.repeat(16), '1'])
        const interfaces = readFileSync(`/proc/${pid}/net/dev`, 'utf8').match(/^ *\w+(?=:)/gm) ?? []
        expect(interfaces.map((name) => name.trim())).toEqual(['lo'])
        for (const path of [join(folder, 'file'), '/dev/shm/file', '/var/tmp/file'])
          expect([path, inside('touch', path)]).toEqual([
            path,
            { code: 1, out: '', err: expect.stringContaining('Read-only file system') },
          ])

        const tollgate = (...words: string[]) =>
          inside(...WITHOUT_RIGHTS, 'env', `TOLLGATE_DATA_DIR=${data}`, program, ...words)
        expect(tollgate('health', '--wait', '60', '--pid', String(pid))).toEqual({
          code: 0,
          out: 'ready\n',
          err: '',
        })
        const limit = () => tollgate('limit', 'user_1', '--limit', '1', '--duration', '30d').code
        expect([limit(), limit()]).toEqual([0, 1])
        server.kill('SIGTERM')
      }
      const log = output + (await new Response(server.stderr).text())
      expect([isAsked, await server.exited, log.match(/"level":"error".*/g)]).toEqual([true, 0, null])
      expect(log).toContain('"event":"stopped"')
    } finally {
      server?.kill('SIGKILL')
      await server?.exited
      rmSync(folder, { recursive: true, force: true })
    }
  },
)
