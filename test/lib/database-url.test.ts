import { expect, test } from 'bun:test'
import { readConfig } from '../../src/config.ts'
import { databaseName, readDatabaseUrl } from '../../src/lib/database-url.ts'

test('a plain URL means one host, no TLS, and the role’s own schema', () => {
  expect(readDatabaseUrl('postgres://me:secret@db.example.com:6432/app')).toMatchObject({
    hosts: [{ host: 'db.example.com', port: 6432 }],
    user: 'me',
    password: 'secret',
    database: 'app',
    tls: { mode: 'disable' },
    schema: null,
    settings: {},
    ignored: [],
  })
})

/** URLs as providers' consoles and Prisma's documentation show them, with other names. */
const PROVIDERS: [url: string, expected: object][] = [
  [
    'postgresql://own:pw@ep-x-1-pooler.eu-central-1.aws.neon.tech/db?sslmode=require&channel_binding=require',
    { tls: { mode: 'require' }, ignored: [] },
  ],
  [
    'postgres://own:pw@ep-x.neon.tech/db?sslmode=require&options=endpoint%3Dep-x-1',
    { rawOptions: 'endpoint=ep-x-1', settings: {} },
  ],
  [
    'postgresql://postgres.abc:pw@aws-0-eu.pooler.supabase.com:6543/postgres?pgbouncer=true&connection_limit=1',
    { user: 'postgres.abc', isPooled: true, ignored: [] },
  ],
  [
    'postgresql://u:p@host:5432/db?schema=public&pool_timeout=20&socket_timeout=5&sslaccept=strict',
    { schema: 'public', tls: { mode: 'verify-full' }, ignored: [] },
  ],
  [
    'postgres://u:p@db-1.b.db.ondigitalocean.com:25060/defaultdb?sslmode=require&sslrootcert=/etc/ca.pem',
    { tls: { mode: 'verify-ca', rootFile: '/etc/ca.pem' } },
  ],
  [
    'postgres://u:p@h/db?sslmode=verify-full&sslrootcert=system',
    { tls: { mode: 'verify-full', rootFile: null } },
  ],
  ['postgres://u:p@h/db?sslrootcert=system', { tls: { mode: 'verify-full' } }],
  [
    'postgres://u:p@h/db?sslmode=require&sslnegotiation=direct&ssl_min_protocol_version=TLSv1.3',
    { tls: { mode: 'require', isDirect: true, minVersion: 'TLSv1.3' } },
  ],
  ['postgres://u:p@h/db?ssl=true', { tls: { mode: 'verify-full' } }],
  ['postgres://u:p@h/db?ssl=false', { tls: { mode: 'disable' } }],
  ['postgres://u:p@h/db?sslmode=no-verify', { tls: { mode: 'require' } }],
  ['postgres://u:p@h/db?sslmode=allow', { tls: { mode: 'allow' } }],
  ['postgres://u:p@h/db?sslrootcert=/ca.pem', { tls: { mode: 'verify-full', rootFile: '/ca.pem' } }],
  ['postgres://u:p@h/db?sslrootcert=/ca.pem&sslmode=require', { tls: { mode: 'verify-ca' } }],
  ['postgres://u:p@h/db?sslcert=/c.pem&sslkey=/k.pem', { tls: { mode: 'require', keyFile: '/k.pem' } }],
  [
    'postgres://u:p@h/db?keepalives=1&keepalives_idle=30&keepalives_interval=10&keepalives_count=3&tcp_user_timeout=1000',
    { keepAliveSeconds: 30, ignored: [] },
  ],
  ['postgres://u:p@h/db?keepalives=0', { keepAliveSeconds: 0 }],
  ['postgres://u:p@h/db?gssencmode=disable&sslcompression=0&client_encoding=UTF8&sslsni=1', { ignored: [] }],
  [
    'postgres://u:p@h/db?application_name=billing&connect_timeout=10',
    { applicationName: 'billing', connectTimeoutSeconds: 10 },
  ],
  [
    'postgres://u:p@h/db?fallback_application_name=x&application_name=y',
    { applicationName: 'y', ignored: [] },
  ],
  [
    'postgres://u:p@h/db?options=-c%20search_path%3Dgate%20-c%20geqo%3Doff%20--work-mem%3D8MB',
    { schema: 'gate', settings: { geqo: 'off', work_mem: '8MB' }, rawOptions: null },
  ],
  ['postgres://u:p@h/db?options=-csearch_path%3D%22My%5C%20Gate%22', { schema: 'My Gate' }],
  ['postgres://u:p@h/db?currentSchema=Gate', { schema: 'Gate' }],
  ['postgres://u:p@h/db?search_path=Gate,public', { schema: 'gate' }],
  ['postgres://u:p@h/db?search_path=%22%24user%22,public', { schema: null }],
  [
    'postgres://u:p@h/db?statement_timeout=5&frobnicate',
    { settings: {}, ignored: ['statement_timeout', 'frobnicate'] },
  ],
]
for (const [url, expected] of PROVIDERS)
  test(`${url.slice(url.indexOf('?'))} is applied or ignored`, () => {
    expect(readDatabaseUrl(url)).toMatchObject(expected)
  })

const HOSTS: [url: string, hosts: [string, number][]][] = [
  ['postgres://u:p@[::1]/db', [['::1', 5432]]],
  ['postgres://u:p@[2001:db8::7]:6000/db', [['2001:db8::7', 6000]]],
  [
    'postgres://u:p@a,b/db',
    [
      ['a', 5432],
      ['b', 5432],
    ],
  ],
  [
    'postgres://u:p@a:1,[::1]:2,c/db',
    [
      ['a', 1],
      ['::1', 2],
      ['c', 5432],
    ],
  ],
  [
    'postgres:///db?host=a,b&port=1,2',
    [
      ['a', 1],
      ['b', 2],
    ],
  ],
  ['postgres://u@/db?host=/var/run/postgresql', [['/var/run/postgresql', 5432]]],
  ['postgres://u@%2Fvar%2Frun%2Fpostgresql:6000/db', [['/var/run/postgresql', 6000]]],
  ['postgres://u@localhost/db?host=/cloudsql/p:r:i', [['/cloudsql/p:r:i', 5432]]],
  ['postgres://u@name/db?hostaddr=10.0.0.1', [['name', 5432]]],
  ['postgres:///db?hostaddr=10.0.0.1&port=6000', [['10.0.0.1', 6000]]],
  ['postgres://', [['localhost', 5432]]],
]
for (const [url, hosts] of HOSTS)
  test(`${url} has the expected hosts`, () => {
    expect(readDatabaseUrl(url).hosts).toEqual(hosts.map(([host, port]) => ({ host, port })))
  })

const PASSWORDS: [text: string, password: string][] = [
  ['p%40ss%3Aw%2Frd%3F%23%25', 'p@ss:w/rd?#%'],
  ['p@ss', 'p@ss'],
  ['a/b', 'a/b'],
  ['a:b', 'a:b'],
  ['a#b', 'a#b'],
  ['a+b', 'a+b'],
  ['%C3%BC', 'ü'],
]
for (const [text, password] of PASSWORDS)
  test(`the password written ${text} arrives as ${password}`, () => {
    expect(readDatabaseUrl(`postgres://me:${text}@h:1/db?sslmode=require`)).toMatchObject({
      user: 'me',
      password,
      hosts: [{ host: 'h', port: 1 }],
      database: 'db',
    })
  })

const REFUSED: [url: string, says: string][] = [
  ['mysql://u:SECRET@h/db', 'begins with "mysql:"'],
  ['h/db', 'without a scheme'],
  ['postgres://u:SECRET%@h/db', 'write %25'],
  ['postgres://u:SECRET?x@h/db', 'write %3F'],
  ['postgres://u@h:SECRET/db', 'a port that is not a number'],
  ['postgres://u@::1/db', 'without brackets; write [::1]'],
  ['postgres://u@h/db?sslmode=maybe', 'sslmode=maybe; it must be disable'],
  ['postgres://u@h/db?sslrootcert=system&sslmode=require', 'use verify-full'],
  ['postgres://u@h/db?sslmode=require&sslcert=/c.pem', 'sslcert without sslkey'],
  ['postgres://u@h/db?sslmode=require&sslkey=/k.pem', 'sslkey without sslcert'],
  ['postgres://u@h/db?sslnegotiation=direct', 'needs sslmode=require'],
  ['postgres://u@h/db?target_session_attrs=standby', 'Tollgate writes'],
  ['postgres://u@h/db?service=x', 'has service=x'],
  ['postgres://u@h/db?connect_timeout=soon', 'a number of seconds'],
  ['postgres://u@h/db?port=1,2', '2 ports for 1 hosts'],
  ['postgres://u@h/db?sslcrl=/x', 'not supported'],
]
for (const [url, says] of REFUSED)
  test(`${url} ends the start with one line that says why and contains no secret`, () => {
    const read = () => readConfig({ DATABASE_URL: url })
    expect(read).toThrow(/^DATABASE_URL /)
    expect(read).toThrow(says)
    expect(read).not.toThrow(/SECRET|\n/)
  })

test('the log names a database without its user, password and parameters', () => {
  expect(databaseName('postgres://me:SECRET@a:1,[::1]/db?password=SECRET&schema=x')).toBe(
    'postgres://a:1,[::1]:5432/db',
  )
  expect(databaseName('postgres://me:SE/CRET@h')).toBe('postgres://h:5432')
})
