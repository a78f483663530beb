import { describe, expect, test } from 'bun:test'
import { isAddressListed, isAddressOrRange, isLoopbackUrl } from '../../src/lib/address.ts'

describe('an address is compared with an allow list bit by bit', () => {
  const cases: [string, string, boolean][] = [
    ['100.100.100.100', '100.100.100.100', true],
    ['200.200.200.200', '100.100.100.100', false],
    ['10.1.2.3', '10.0.0.0/8', true],
    ['11.1.2.3', '10.0.0.0/8', false],
    ['192.168.5.130', '192.168.5.128/25', true],
    ['192.168.5.127', '192.168.5.128/25', false],
    ['1.2.3.4', '0.0.0.0/0', true],
    ['::ffff:10.1.2.3', '10.0.0.0/8', true],
    ['10.1.2.3', '::ffff:10.1.2.3', true],
    ['10.1.2.3', '::ffff:10.0.0.0/104', true],
    ['2001:db8::1', '2001:db8::/32', true],
    ['2001:db9::1', '2001:db8::/32', false],
    ['2001:DB8:0:0:0:0:0:1', '2001:db8::1', true],
    ['::1', '127.0.0.1', false],
    ['nonsense', '0.0.0.0/0', false],
  ]
  for (const [address, entry, expected] of cases)
    test(`${address} is ${expected ? '' : 'not '}in ${entry}`, () =>
      expect(isAddressListed(address, ['198.51.100.7', entry])).toBe(expected))
})

test('a text that is neither an address nor a range is refused', () => {
  for (const text of [
    '',
    'a',
    '10.0.0.0/33',
    '10.0.0/8',
    '2001:db8::/129',
    '10.0.0.0/-1',
    '10.0.0.0/8/8',
    'fe80::1%eth0',
  ])
    expect(isAddressOrRange(text)).toBe(false)
  for (const text of ['10.0.0.0/32', '::/0', '::ffff:10.0.0.0/104']) expect(isAddressOrRange(text)).toBe(true)
})

test('a URL of this machine is recognised in every spelling', () => {
  const here = [
    '127.0.0.1:3000',
    '127.9.9.9',
    '127.1',
    '2130706433',
    'localhost',
    'LOCALHOST.',
    'x.localhost',
  ]
  for (const host of [...here, '[::1]:80', '[::ffff:127.0.0.1]', '0.0.0.0:3000', '[::]:3000'])
    expect([host, isLoopbackUrl(`http://${host}/v1`)]).toEqual([host, true])
  for (const host of ['10.0.0.1', 'localhost.example.com', 'notlocalhost', '128.0.0.1', '[2001:db8::1]'])
    expect([host, isLoopbackUrl(`https://${host}/v1`)]).toEqual([host, false])
})
