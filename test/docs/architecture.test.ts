import { expect, test } from 'bun:test'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from './blocks.ts'

const text = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8')
const [walks = '', recipes = ''] = text.split('## Recipes')
const inSource = (path: string) => existsSync(join(ROOT, 'src', path)) || existsSync(join(ROOT, path))

test('every file and folder named on the architecture page exists', () => {
  const named = [...walks.matchAll(/`([a-z0-9-]+(?:\/[a-z0-9.-]+)*\/?(?:\.ts)?)`/g)]
    .map(([, path = '']) => path)
    .filter((path) => path.includes('/') || path.endsWith('.ts'))
  expect(named.length).toBeGreaterThan(20)
  expect(named.filter((path) => !inSource(path))).toEqual([])
})

test('the files that a recipe says to change exist', () => {
  const named = [...recipes.matchAll(/`((?:src|test|sql|doors|server)\/[a-z0-9./-]+\.ts)`/g)]
    .map(([, path = '']) => path)
    .filter((path) => !path.includes('count-keys')) // the recipe creates this one
  expect(named.filter((path) => !inSource(path))).toEqual([])
})

test('the table of tiers names every folder of src', () => {
  const folders = readdirSync(join(ROOT, 'src')).filter((name) =>
    statSync(join(ROOT, 'src', name)).isDirectory(),
  )
  const table = text.slice(text.indexOf('## The tiers'), text.indexOf('## What is stored where'))
  expect(folders.filter((name) => !table.includes(`${name}/`))).toEqual([])
})
