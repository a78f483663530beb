import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Path of `openssl`; null = not installed, and nothing about TLS can be tested. */
export const OPENSSL = Bun.which('openssl')

/** A certificate authority in a folder. */
export type Authority = {
  /** PEM file of its certificate. */
  path: string
  /** Makes a certificate. @returns the PEM files. */
  issue(
    name: string,
    options: { subject: string; names?: string[]; isExpired?: boolean },
  ): { certificate: string; key: string }
}

/** Makes a certificate authority in a new folder below `parent`. */
export function makeAuthority(parent: string, name: string): Authority {
  const folder = join(parent, name)
  mkdirSync(folder)
  const openssl = (...args: string[]) => {
    const { success, stderr } = Bun.spawnSync([OPENSSL ?? '', ...args], { cwd: folder })
    if (!success) throw new Error(`openssl ${args.join(' ')}: ${stderr.toString()}`)
  }
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  openssl(
    ...['req', '-x509', ...newKey, '-keyout', 'ca.key', '-out', 'ca.pem', '-days', '2'],
    ...['-subj', `/CN=${name} of the tests`, '-addext', 'basicConstraints=critical,CA:TRUE'],
  )
  writeFileSync(join(folder, 'index.txt'), '')
  const lines = [
    '[ca]',
    'database=index.txt',
    'default_md=sha256',
    'policy=any',
    'unique_subject=no',
    'rand_serial=yes',
  ]
  writeFileSync(join(folder, 'ca.cnf'), `${[...lines, '[any]', 'commonName=supplied'].join('\n')}\n`)
  return {
    path: join(folder, 'ca.pem'),
    issue: (each, { subject, names = [], isExpired = false }) => {
      openssl(
        ...['req', ...newKey, '-keyout', `${each}.key`, '-out', `${each}.csr`, '-subj', `/CN=${subject}`],
      )
      writeFileSync(
        join(folder, `${each}.ext`),
        names.length === 0 ? '\n' : `subjectAltName=${names.join()}\n`,
      )
      const [from, to] = isExpired
        ? ['20200101000000Z', '20200201000000Z']
        : ['20200101000000Z', '20991231000000Z']
      openssl(
        ...[
          'ca',
          '-batch',
          '-notext',
          '-config',
          'ca.cnf',
          '-name',
          'ca',
          '-cert',
          'ca.pem',
          '-keyfile',
          'ca.key',
        ],
        ...['-outdir', '.', '-startdate', from, '-enddate', to, '-extfile', `${each}.ext`],
        ...['-in', `${each}.csr`, '-out', `${each}.pem`],
      )
      return { certificate: join(folder, `${each}.pem`), key: join(folder, `${each}.key`) }
    },
  }
}
