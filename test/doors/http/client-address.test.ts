import { expect, test } from 'bun:test'
import { clientAddress } from '../../../src/doors/http/client-address.ts'
import { CopiedRequest } from '../../../src/doors/http/request-reader.ts'

const addressOf = (
  peer: string | null,
  headers: Record<string, string>,
  trusted: string[] = ['10.0.0.0/8'],
) =>
  clientAddress(
    new CopiedRequest(new Request('http://localhost/', { headers }), {
      requestIP: () => (peer === null ? null : { address: peer }),
    }),
    trusted,
  )

/** Otherwise anybody could send the header that an allow list trusts. */
test('headers of an untrusted peer are ignored', () => {
  for (const header of ['x-forwarded-for', 'true-client-ip', 'cf-connecting-ip'])
    expect(addressOf('203.0.113.9', { [header]: '192.0.2.1' })).toBe('203.0.113.9')
  expect(addressOf('203.0.113.9', { 'x-forwarded-for': '192.0.2.1' }, [])).toBe('203.0.113.9')
})

test('X-Forwarded-For is read from the right, up to the first address that is not a trusted proxy', () => {
  const through = (forwarded: string) => addressOf('10.0.0.1', { 'x-forwarded-for': forwarded })
  expect(through('192.0.2.1')).toBe('192.0.2.1')
  expect(through('192.0.2.1, 10.0.0.3, 10.0.0.2')).toBe('192.0.2.1')
  expect(through('100.100.100.100, 192.0.2.1, 10.0.0.2')).toBe('192.0.2.1') // the client made up the first entry
  expect(through('10.9.9.9, 10.0.0.2')).toBe('10.9.9.9') // a client inside the trusted network
})

test('entries with a port, in brackets or as mapped IPv6 are understood', () => {
  const through = (forwarded: string) => addressOf('::ffff:10.0.0.1', { 'x-forwarded-for': forwarded })
  expect(through('192.0.2.1:4711, ::ffff:10.0.0.2')).toBe('192.0.2.1')
  expect(through('[2001:db8::1]:443')).toBe('2001:db8::1')
  expect(through('2001:db8::1')).toBe('2001:db8::1')
})

/** Using the proxy's own address instead could pass an allow list that names the proxy. */
test('an entry that is not an address makes the client unknown', () => {
  for (const forwarded of ['unknown', '', '10.0.0.0/8', '192.0.2.1, _hidden'])
    expect(addressOf('10.0.0.1', { 'x-forwarded-for': forwarded })).toBeNull()
  expect(addressOf('10.0.0.1', { 'true-client-ip': 'nobody' })).toBeNull()
})

test('True-Client-IP, then CF-Connecting-IP, are used without X-Forwarded-For', () => {
  const named = { 'true-client-ip': '192.0.2.1', 'cf-connecting-ip': '192.0.2.2' }
  expect(addressOf('10.0.0.1', named)).toBe('192.0.2.1')
  expect(addressOf('10.0.0.1', { 'cf-connecting-ip': '192.0.2.2' })).toBe('192.0.2.2')
  expect(addressOf('10.0.0.1', { ...named, 'x-forwarded-for': '192.0.2.3' })).toBe('192.0.2.3')
})

test('a trusted peer without these headers is the client itself, and a Unix socket has no address', () => {
  expect(addressOf('10.0.0.1', {})).toBe('10.0.0.1')
  expect(addressOf(null, { 'x-forwarded-for': '192.0.2.1' })).toBeNull()
})

test('any number of entries is read in bounded time, and entries past the bound are not trusted', () => {
  const forged = `192.0.2.1, ${'10.0.0.2, '.repeat(100)}10.0.0.2`
  expect(addressOf('10.0.0.1', { 'x-forwarded-for': forged })).toBe('10.0.0.2')
})
