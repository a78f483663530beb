import { useState } from 'preact/hooks'
import type { ExplainKeyReply, KeyObject } from '../../../doors/v1/keys/schema.ts'
import { CallText } from '../parts/call.tsx'
import { Field } from '../parts/controls.tsx'
import { FormDialog } from '../parts/dialog.tsx'
import { Icon } from '../parts/icons.tsx'
import { ask } from '../session.ts'
import { Checks } from './key-checks.tsx'
import { listOf } from './key-fields.ts'
import { nameOf } from './key-state.ts'

/** A verification as it would end now, from an address and for permissions. It takes and counts nothing. */
export function TestKey({ record, onClose }: { record: KeyObject; onClose: () => void }) {
  const [address, setAddress] = useState('')
  const [permission, setPermission] = useState('')
  const [tags, setTags] = useState('')
  const [answer, setAnswer] = useState<{ reply: ExplainKeyReply; tookMs: number } | null>(null)
  const input = {
    keyId: record.id,
    ...(address.trim() !== '' && { ipAddress: address.trim() }),
    ...(permission.trim() !== '' && { authorization: { permissions: permission.trim() } }),
    ...(listOf(tags).length > 0 && { tags: listOf(tags) }),
  }
  return (
    <FormDialog
      title={`Test ${nameOf(record)}`}
      button={answer === null ? 'Test' : 'Test again'}
      busy="Testing…"
      staysOpen
      onClose={onClose}
      run={async () => {
        const start = performance.now()
        const reply = await ask('keys.explainKey', input)
        setAnswer({ reply, tookMs: Math.max(1, Math.round(performance.now() - start)) })
      }}
    >
      <p class="secondary">
        The server checks the key as a verification does, and takes nothing: no credit, no token of a limit,
        no count in its usage.
      </p>
      <div class="two">
        <Field
          label="From address"
          value={address}
          onInput={setAddress}
          placeholder="203.0.113.7"
          maxLength={64}
        />
        <Field
          label="Asking for permission"
          value={permission}
          onInput={setPermission}
          placeholder="documents.read"
          maxLength={512}
        />
      </div>
      <Field
        label="Tags"
        value={tags}
        onInput={setTags}
        placeholder="web, eu"
        maxLength={2000}
        hint="Separated by commas. They never change the answer."
      />
      {answer !== null && (
        <section aria-label="Answer">
          <p class={`verdict ${answer.reply.valid ? 'ok' : 'bad'}`} role="status">
            <Icon name={answer.reply.valid ? 'check' : 'cross'} />
            {answer.reply.valid ? 'It would pass' : 'It would be refused'} <code>{answer.reply.code}</code>
            <span class="secondary">answered in {answer.tookMs} ms</span>
          </p>
          <Checks checks={answer.reply.checks} />
        </section>
      )}
      <CallText isFolded method="keys.explainKey" input={input} />
    </FormDialog>
  )
}
