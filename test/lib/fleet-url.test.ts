import { expect, test } from 'bun:test'
import { FleetUrlError, fleetName, readFleetUrl } from '../../src/lib/fleet-url.ts'
import { redisAt } from '../support/redis.ts'

const plain = { ...redisAt(6379), hosts: [{ host: 'redis', port: 6379 }] }

test('each kind of engine has a scheme, each with and without TLS', () => {
  expect(readFleetUrl('postgres')).toEqual({ kind: 'postgres' })
  expect(readFleetUrl('redis://redis')).toEqual(plain)
  expect(readFleetUrl(' rediss://app:s3cret@redis:6380/2 ')).toEqual({
    ...plain,
    hosts: [{ host: 'redis', port: 6380 }],
    hasTls: true,
    user: 'app',
    password: 's3cret',
    database: 2,
  })
  expect(
    readFleetUrl('redis-sentinel://:pw@a,b:26380/main/3?sentinel_user=watch&sentinel_password=a%26b'),
  ).toEqual({
    ...plain,
    mode: 'sentinel',
    hosts: [
      { host: 'a', port: 26379 },
      { host: 'b', port: 26380 },
    ],
    password: 'pw',
    database: 3,
    masterName: 'main',
    sentinelUser: 'watch',
    sentinelPassword: 'a&b',
  })
  expect(readFleetUrl('rediss-cluster://[::1]:7000,10.0.0.2')).toEqual({
    ...plain,
    mode: 'cluster',
    hosts: [
      { host: '::1', port: 7000 },
      { host: '10.0.0.2', port: 6379 },
    ],
    hasTls: true,
  })
  expect(readFleetUrl('redis://:p%40ss%2Fw%3Ard@redis')).toEqual({ ...plain, password: 'p@ss/w:rd' })
})

test('a URL that cannot be meant is refused, and the refusal does not tell it', () => {
  const wrong: [text: string, says: string][] = [
    ['', 'must be postgres, or begin with redis://'],
    ['http://redis', 'must be postgres, or begin with redis://'],
    ['postgres://app:s3cret@db/app', 'write postgres alone'],
    ['redis://', 'names a host that cannot be read'],
    ['redis://:s3cret@a:b:c', 'names a host that cannot be read'],
    ['redis://[a]:6379', 'names a host that cannot be read'],
    ['redis://:s3cret@a:70000', 'has port 70000'],
    ['redis://:s3cret@a,b', 'has several hosts'],
    ['redis://:s3cret@a/x', 'has a path that is no number'],
    ['redis://:s3/cret@a', 'has an unencoded /'],
    ['redis://:s3@cret@a', 'has an unencoded /'],
    ['redis://:s3cret%@a', 'has a password that is not percent-encoded'],
    ['redis-cluster://a/1', 'names database 1'],
    ['redis-sentinel://a', "lacks the master's name"],
    ['redis://a?sentinel_password=s3cret', 'has the parameter "sentinel_password"'],
    ['redis-sentinel://a/main?tls=s3cret', 'has the parameter "tls"'],
    ['redis-sentinel://a/main?sentinel_password=s3cret@b', 'has an unencoded /'],
  ]
  for (const [text, says] of wrong) {
    const read = () => readFleetUrl(text)
    expect(read, text).toThrow(FleetUrlError)
    expect(read, text).toThrow(says)
    expect(read, text).not.toThrow('s3cret')
  }
})

test('the name for the log has neither user, nor password, nor parameters', () => {
  for (const [text, name] of [
    ['postgres', 'postgres'],
    ['rediss://app:s3cret@redis/2', 'rediss://redis:6379/2'],
    ['redis-cluster://:s3cret@[::1],b:7', 'redis-cluster://[::1]:6379,b:7'],
    ['redis-sentinel://a/main/1?sentinel_password=s3cret', 'redis-sentinel://a:26379/main/1'],
  ])
    expect(fleetName(readFleetUrl(text ?? ''))).toBe(name ?? '')
})
