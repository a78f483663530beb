import { useState } from 'preact/hooks'
import { session } from '../session.ts'
import { Button, Snippet } from './controls.tsx'

const FORMS = [
  { value: 'json', name: 'JSON' },
  { value: 'curl', name: 'curl' },
  { value: 'ts', name: 'TypeScript' },
] as const

/** The call that a form or an action makes, to copy: the page teaches the API. @param props.isFolded It is opened when it is wanted. */
export function CallText({
  method,
  input,
  isFolded = false,
}: {
  method: string
  input: object
  isFolded?: boolean
}) {
  const [form, setForm] = useState<(typeof FORMS)[number]['value']>('json')
  const about = (
    <>
      The same by the API: <code>{method}</code>
    </>
  )
  const text = (
    <>
      <div class="tabs">
        {FORMS.map(({ value, name }) => (
          <Button key={value} kind="quiet" isPressed={form === value} onClick={() => setForm(value)}>
            {name}
          </Button>
        ))}
      </div>
      <Snippet text={textOf(form, method, input)} />
    </>
  )
  return isFolded ? (
    <details class="by-api">
      <summary>{about}</summary>
      {text}
    </details>
  ) : (
    <section class="by-api" aria-label="The same by the API">
      <p class="secondary">{about}</p>
      {text}
    </section>
  )
}

function textOf(form: (typeof FORMS)[number]['value'], method: string, input: object): string {
  const json = JSON.stringify(input, null, 2)
  const url = `${session.value?.apiUrl ?? location.origin}/v1/${method}`
  switch (form) {
    case 'json':
      return json
    case 'curl':
      // Within single quotes of a shell only the quote itself means something.
      return `curl -X POST ${url} \\\n  -H "Authorization: Bearer $ROOT_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d '${json.replaceAll("'", `'\\''`)}'`
    case 'ts':
      return `const response = await fetch('${url}', {\n  method: 'POST',\n  headers: {\n    Authorization: \`Bearer \${process.env.ROOT_KEY}\`,\n    'Content-Type': 'application/json',\n  },\n  body: JSON.stringify(${json.replaceAll('\n', '\n  ')}),\n})`
    default:
      return form satisfies never
  }
}
