import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { AnySql } from '../../src/db/connect.ts'

/** Tables with a row that contains one of the texts in any column. Byte columns are also searched as hex. */
export async function tablesWith(sql: AnySql, texts: readonly string[]): Promise<string[]> {
  const tables = await sql<{ name: string }[]>`
    select quote_ident(relname) as name from pg_class
     where relnamespace = 'public'::regnamespace and relkind = 'r' order by 1`
  const found: string[] = []
  for (const text of texts)
    for (const { name } of tables) {
      const rows = await sql.unsafe(
        `select 1 from ${name} as t where strpos(t::text, $1) > 0 or strpos(t::text, $2) > 0 limit 1`,
        [text, Buffer.from(text).toString('hex')],
      )
      if (rows.length > 0) found.push(`${name}: ${text}`)
    }
  return found
}

/** Files below a folder that contain one of the texts. */
export function filesWith(folder: string, texts: readonly string[]): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' }).flatMap((name) => {
    const path = join(folder, name)
    if (!statSync(path).isFile()) return []
    const bytes = readFileSync(path)
    return texts.filter((text) => bytes.includes(text)).map((text) => `${name}: ${text}`)
  })
}
