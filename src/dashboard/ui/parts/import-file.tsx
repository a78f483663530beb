import { useId, useState } from 'preact/hooks'
import {
  IMPORT_FIELDS,
  type ImportField,
  type ImportFormat,
  readColumns,
} from '../../../lib/imports/read-import.ts'
import { KEYS_PER_CALL, type RefusedLine, type SentKeys } from '../../../lib/imports/send-keys.ts'
import { useData } from '../data.ts'
import { counted, exact, share } from '../format.ts'
import {
  checkImport,
  chunksOf,
  forgetImport,
  type ImportJob,
  type ImportRun,
  importRun,
  REFUSED_KEPT_MAX,
  refusedFile,
  startImport,
  stopImport,
  wordsOf,
} from '../import-run.ts'
import { ask, lacking, lackingOn, workspaceId } from '../session.ts'
import { CallText } from './call.tsx'
import { Button } from './controls.tsx'
import { Choice } from './form.tsx'
import { Icon } from './icons.tsx'
import { saveFile } from './save-csv.tsx'

/** Imports keys from a file: choose, say what is what, check, import. */
export function ImportFile({ onDone }: { onDone: () => void }) {
  const run = importRun.value
  const title = useId()
  return (
    <section class="panel wide" aria-labelledby={title}>
      <header>
        <h2 id={title}>Keys from a file</h2>
      </header>
      {run === null ? (
        <ImportForm />
      ) : run.job.workspaceId !== workspaceId.value ? (
        <p class="empty">An import of another workspace is open in this tab. It goes on meanwhile.</p>
      ) : (
        <Run
          run={run}
          onClose={() => {
            forgetImport()
            onDone()
          }}
        />
      )}
    </section>
  )
}

/** A chosen file. Columns are null for NDJSON, whose lines name the fields themselves. */
type Chosen = {
  file: File
  format: ImportFormat
  names: readonly string[] | null
  fields: readonly (ImportField | null)[] | null
}

function ImportForm() {
  const [chosen, setChosen] = useState<Chosen | null>(null)
  const [apiId, setApiId] = useState('')
  const [trouble, setTrouble] = useState<string | null>(null)
  const [isBusy, setBusy] = useState(false)
  const [checked, setChecked] = useState<{ found: SentKeys; lines: number } | null>(null)
  const id = useId()
  const workspace = workspaceId.value ?? ''
  const apis = useData(`apis ${workspace}`, ({ signal }) => ask('apis.listApis', { limit: 100 }, { signal }))
  const choose = async (file: File | undefined) => {
    setTrouble(null)
    setChecked(null)
    setChosen(null)
    if (file === undefined) return
    const format = /\.(ndjson|jsonl|json)$/i.test(file.name) ? 'ndjson' : 'csv'
    try {
      if (format === 'ndjson') return setChosen({ file, format, names: null, fields: null })
      const names = await readColumns(chunksOf(file))
      if (names.length === 0) return setTrouble('The file is empty.')
      if (names.length > COLUMNS_MAX)
        return setTrouble(`The file has ${names.length} columns; at most ${COLUMNS_MAX} are read.`)
      setChosen({ file, format, names, fields: fieldsOf(names) })
    } catch (cause) {
      setTrouble(wordsOf(cause))
    }
  }
  const problem = chosen === null ? 'choose a file first' : problemOf(chosen, apiId)
  const missing = (apiId === '' ? lacking('api.*.create_key') : lackingOn(apiId, 'create_key')) ?? problem
  const jobOf = ({ file, format, fields }: Chosen): ImportJob => ({
    workspaceId: workspace,
    file,
    format,
    apiId: apiId === '' ? null : apiId,
    columns: fields,
  })
  const check = async () => {
    if (chosen === null || isBusy) return
    setBusy(true)
    setTrouble(null)
    setChecked(null)
    try {
      setChecked(await checkImport(jobOf(chosen)))
    } catch (cause) {
      setTrouble(wordsOf(cause))
    } finally {
      setBusy(false)
    }
  }
  return (
    <div class="stack">
      <div class="line import-what">
        <div class="field">
          <label for={id}>File</label>
          <input
            id={id}
            type="file"
            accept=".csv,.ndjson,.jsonl,.json,.txt,text/csv"
            aria-describedby={`${id}-hint`}
            onChange={(event) => void choose(event.currentTarget.files?.[0])}
          />
          <p class="hint" id={`${id}-hint`}>
            CSV with a header line, or NDJSON, in UTF-8 and of any size. This tab reads it line by line and
            keeps nothing of it.
          </p>
        </div>
        <div>
          <Choice
            label="API of the keys"
            value={apiId}
            options={[
              { value: '', name: 'the one that each line names' },
              ...(apis.data?.apis ?? []).map(({ id: value, name }) => ({ value, name })),
            ]}
            onChange={(value) => {
              setApiId(value)
              setChecked(null)
            }}
          />
        </div>
      </div>
      {trouble !== null && (
        <div class="notice bad" role="alert">
          <Icon name="warning" />
          <p>{trouble}</p>
        </div>
      )}
      {chosen !== null && chosen.names !== null && (
        <Mapping
          names={chosen.names}
          fields={chosen.fields ?? []}
          onChange={(fields) => {
            setChosen({ ...chosen, fields })
            setChecked(null)
          }}
        />
      )}
      {chosen?.names === null && (
        <p class="secondary">
          Each line is an element of <a href="/docs/api">migrations.createKeys</a>.
        </p>
      )}
      {checked !== null && <Checked {...checked} />}
      <div class="line">
        <Button icon="check" lacking={missing} isBusy={isBusy} onClick={() => void check()}>
          {isBusy ? 'Checking…' : `Check the first ${KEYS_PER_CALL} keys`}
        </Button>
        <Button
          kind="main"
          icon="imports"
          lacking={missing}
          onClick={() => {
            if (chosen !== null) void startImport(jobOf(chosen))
          }}
        >
          Import
        </Button>
        <p class="secondary" role="status">
          {problem !== null && chosen !== null && `${problem.charAt(0).toUpperCase()}${problem.slice(1)}.`}
        </p>
      </div>
      <details>
        <summary>Limits, and what happens to a key that exists</summary>
        <ul class="plain-list secondary">
          <li>
            A key whose hash exists is not made twice, also when it was deleted. So import a file again
            whenever you like: after a closed tab, or for what is new in it.
          </li>
          <li>
            Keys go in calls of {KEYS_PER_CALL}. A line, or a cell over several lines, has at most 1 048 576
            characters, and so has a call.
          </li>
          <li>
            The reasons of the first {exact(REFUSED_KEPT_MAX)} refused lines are kept until you close the tab.
          </li>
          <li>
            Roles and permissions must exist before. The check does not foresee bounds of the whole workspace.
          </li>
          <li>
            For millions of keys <code>tollgate import</code> is faster: it sends several calls at once.
          </li>
        </ul>
      </details>
      <CallText
        isFolded
        method="migrations.createKeys"
        input={[
          {
            apiId: apiId === '' ? 'api_…' : apiId,
            hash: { value: 'SHA-256 of the key, in base64', variant: 'sha256_base64' },
            name: 'production',
          },
        ]}
      />
    </div>
  )
}

const COLUMNS_MAX = 100

/** Which field each column of a CSV is. Cells are not shown: they may be keys. */
function Mapping({
  names,
  fields,
  onChange,
}: {
  names: readonly string[]
  fields: readonly (ImportField | null)[]
  onChange: (fields: readonly (ImportField | null)[]) => void
}) {
  return (
    <fieldset class="mapping">
      <legend>Which field is each column?</legend>
      {names.map((name, index) => (
        // Columns have no other name than their place: two may be called the same.
        <Choice
          key={index}
          label={name === '' ? `column ${index + 1}` : name}
          value={fields[index] ?? LEFT_OUT}
          options={FIELD_OPTIONS}
          onChange={(value) => {
            const next = [...fields]
            next[index] = value === LEFT_OUT ? null : value
            onChange(next)
          }}
        />
      ))}
    </fieldset>
  )
}

const LEFT_OUT = '-'
const ABOUT: Partial<Record<ImportField, string>> = {
  hash: 'SHA-256, base64 or hex',
  plaintext: 'the key itself',
  externalId: 'your user or organisation',
  meta: 'JSON',
  roles: 'names, separated by blanks',
  permissions: 'slugs, separated by blanks',
  expires: 'a time, or Unix ms',
  remaining: 'credits',
  refill: 'JSON',
  ratelimit: 'JSON',
  enabled: 'true or false',
}
const FIELD_OPTIONS: readonly { value: ImportField | typeof LEFT_OUT; name: string }[] = [
  { value: LEFT_OUT, name: 'leave out' },
  ...IMPORT_FIELDS.map((value) => {
    const about = ABOUT[value]
    return { value, name: about === undefined ? value : `${value}: ${about}` }
  }),
]

/** Names that other systems use, without case, blanks and underscores. */
const ALSO_CALLED: Record<string, ImportField> = {
  keyhash: 'hash',
  sha256: 'hash',
  key: 'plaintext',
  apikey: 'plaintext',
  token: 'plaintext',
  secret: 'plaintext',
  userid: 'externalId',
  customerid: 'externalId',
  owner: 'ownerId',
  expiresat: 'expires',
  expiry: 'expires',
  credits: 'remaining',
  label: 'name',
  metadata: 'meta',
}

/** A guess by the names; of two columns that could be a field, the first is. */
function fieldsOf(names: readonly string[]): (ImportField | null)[] {
  const used = new Set<ImportField>()
  return names.map((name) => {
    const short = name.toLowerCase().replace(/[\s_-]/g, '')
    const field = IMPORT_FIELDS.find((each) => each.toLowerCase() === short) ?? ALSO_CALLED[short]
    if (field === undefined || used.has(field)) return null
    used.add(field)
    return field
  })
}

/** Why a file cannot be imported like this; null = it can. */
function problemOf({ fields }: Chosen, apiId: string): string | null {
  if (fields === null) return null
  const used = fields.filter((each) => each !== null)
  const twice = used.find((each, at) => used.indexOf(each) !== at)
  if (twice !== undefined) return `two columns are ${twice}`
  const [hasHash, hasText] = [used.includes('hash'), used.includes('plaintext')]
  if (!hasHash && !hasText) return 'say which column is the hash, or the plaintext'
  if (hasHash && hasText) return 'leave out the hash or the plaintext: one of them is enough'
  if (apiId === '' && !used.includes('apiId')) return 'choose the API of the keys'
  return null
}

function Checked({ found: { imported, existing, refused }, lines }: { found: SentKeys; lines: number }) {
  return (
    <section class="stack" aria-label="What the check found">
      <div class={refused.length === 0 ? 'notice ok' : 'notice warn'} role="status">
        <Icon name={refused.length === 0 ? 'check' : 'warning'} />
        <p>
          {lines === 0
            ? 'There is no key in the file.'
            : `Of the first ${counted(lines, 'key')}: ${exact(imported)} would be imported, ${exact(existing)} ${existing === 1 ? 'exists' : 'exist'} already, ${exact(refused.length)} would be refused. Nothing was changed.`}
        </p>
      </div>
      <RefusedLines lines={refused} />
    </section>
  )
}

function RefusedLines({ lines }: { lines: readonly RefusedLine[] }) {
  if (lines.length === 0) return null
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and the keyboard must be able to scroll it
    <section class="scrolling" tabIndex={0} aria-label="Refused lines, table">
      <table>
        <thead>
          <tr>
            <th scope="col" class="number">
              Line
            </th>
            <th scope="col">Reason</th>
          </tr>
        </thead>
        <tbody>
          {lines.slice(0, REFUSED_SHOWN_MAX).map(({ line, reason }) => (
            <tr key={line}>
              <th scope="row" class="number">
                {exact(line)}
              </th>
              <td class="wrap">{reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {lines.length > REFUSED_SHOWN_MAX && (
        <p class="secondary">The first {REFUSED_SHOWN_MAX}; the others are in the file.</p>
      )}
    </section>
  )
}

const REFUSED_SHOWN_MAX = 100

const PHASES = { running: 'Importing', stopped: 'Stopped', done: 'Imported' } as const

function Run({ run, onClose }: { run: ImportRun; onClose: () => void }) {
  const { job, phase, trouble, line, bytesRead, imported, existing, refused, refusedLines } = run
  const [saving, setSaving] = useState<string | null>(null)
  const size = Math.max(1, job.file.size)
  const save = async () => {
    setSaving(null)
    try {
      const { name, content } = await refusedFile(run)
      saveFile(name, [content], content.type)
    } catch (cause) {
      setSaving(wordsOf(cause))
    }
  }
  return (
    <div class="stack">
      <div>
        <p role="status">
          <b>{PHASES[phase]}</b> {job.file.name}
          {phase === 'stopped' && ` after line ${exact(line)}`}
          {phase === 'running' && `, ${share(bytesRead, size)}`}
        </p>
        <progress aria-label={`Import of ${job.file.name}`} max={size} value={bytesRead} />
      </div>
      <dl class="figures">
        {[
          ['imported', imported],
          ['existed already', existing],
          ['refused', refused],
        ].map(([name, count]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{exact(Number(count))}</dd>
          </div>
        ))}
      </dl>
      {trouble !== null && (
        <div class={phase === 'running' ? 'notice warn' : 'notice bad'} role="alert">
          <Icon name="warning" />
          <p>
            {trouble}
            {phase === 'stopped' && ' Nothing is lost: go on, or import the same file again later.'}
          </p>
        </div>
      )}
      {saving !== null && (
        <div class="notice bad" role="alert">
          <Icon name="warning" />
          <p>{saving}</p>
        </div>
      )}
      <div class="line">
        {phase === 'running' && (
          <Button icon="pause" onClick={stopImport}>
            Stop
          </Button>
        )}
        {phase === 'stopped' && (
          <Button kind="main" icon="play" onClick={() => void startImport(run)}>
            Go on
          </Button>
        )}
        {refused > 0 && phase !== 'running' && (
          <Button icon="download" onClick={() => void save()}>
            Save refused lines
          </Button>
        )}
        {phase !== 'running' && (
          <Button kind={phase === 'done' ? 'main' : 'plain'} onClick={onClose}>
            {phase === 'done' ? 'Import another file' : 'Give up'}
          </Button>
        )}
      </div>
      <p class="secondary">
        {phase === 'running'
          ? 'It goes on while you look at other screens of this tab. If the tab is closed, import the same file again: what exists is not made twice.'
          : refused > REFUSED_KEPT_MAX
            ? `The file of refused lines has the first ${exact(REFUSED_KEPT_MAX)}, as they are in your file, with line and reason. It holds what they hold, keys too.`
            : refused > 0
              ? 'The file of refused lines has them as they are in your file, with line and reason, to correct and to import again. It holds what they hold, keys too.'
              : ''}
      </p>
      <RefusedLines lines={refusedLines} />
    </div>
  )
}
