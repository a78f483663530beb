import { useState } from 'preact/hooks'
import type { ListApisReply } from '../../../doors/v1/apis/schema.ts'
import type { KeyObject } from '../../../doors/v1/keys/schema.ts'
import { CallText } from '../parts/call.tsx'
import { Button, Failure, Field, useAction } from '../parts/controls.tsx'
import { Dialog, SecretDialog } from '../parts/dialog.tsx'
import { Area, Check, Choice } from '../parts/form.tsx'
import { toast } from '../parts/toast.tsx'
import { ask, lackingOn, within } from '../session.ts'
import {
  createInput,
  fieldOfMessage,
  fieldsOf,
  type KeyFields,
  NEW_KEY,
  type Problems,
  updateInput,
} from './key-fields.ts'
import { UNITS } from './key-state.ts'

/** Makes a key. Its text is shown once, before the dialog goes. */
export function CreateKey({
  apis,
  apiId: given,
  onClose,
  onMade,
}: {
  apis: ListApisReply['apis']
  apiId: string
  onClose: () => void
  onMade: () => void
}) {
  const [apiId, setApiId] = useState(given === '' ? (apis[0]?.id ?? '') : given)
  const [made, setMade] = useState<{ keyId: string; key: string } | null>(null)
  const api = apis.find(({ id }) => id === apiId)
  if (made !== null)
    return (
      <SecretDialog
        title="The new key"
        secret={made.key}
        fileName="key.txt"
        about={
          <>
            Give it to whoever shall use it. <a href={within(`keys/${made.keyId}`)}>Its page</a> never shows
            it.
          </>
        }
        onClose={onClose}
      />
    )
  if (apis.length === 0 && given === '')
    return (
      <Dialog title="Create key" onClose={onClose}>
        <p>A key belongs to an API, and there is none yet.</p>
        <p>
          <a href={within('apis?create')}>Create an API</a> first.
        </p>
      </Dialog>
    )
  return (
    <KeyForm
      title="Create key"
      button="Create key"
      busy="Creating…"
      method="keys.createKey"
      start={NEW_KEY}
      isNew
      readInput={(fields) => createInput(apiId, fields)}
      lacking={lackingOn(apiId, 'create_key')}
      prefixHint={
        api?.defaultPrefix == null
          ? 'The key looks like prefix_random.'
          : `Default of the API: ${api.defaultPrefix}`
      }
      send={async (input) => {
        const reply = await ask('keys.createKey', input)
        onMade()
        setMade(reply)
      }}
      onClose={onClose}
    >
      <Choice
        label="API"
        value={apiId}
        options={apis.map(({ id, name }) => ({ value: id, name }))}
        onChange={setApiId}
      />
    </KeyForm>
  )
}

/** Changes a key. Only what was changed is sent. */
export function EditKey({
  record,
  onClose,
  onChanged,
}: {
  record: KeyObject
  onClose: () => void
  onChanged: () => void
}) {
  return (
    <KeyForm
      title="Edit key"
      button="Save"
      busy="Saving…"
      method="keys.updateKey"
      start={fieldsOf(record)}
      isNew={false}
      readInput={(fields) => updateInput(record, fields)}
      lacking={lackingOn(record.apiId, 'update_key')}
      send={async (input) => {
        await ask('keys.updateKey', input)
        toast('Saved. Verifications use it from now on.')
        onChanged()
        onClose()
      }}
      onClose={onClose}
    />
  )
}

function KeyForm({
  title,
  button,
  busy,
  method,
  start: given,
  isNew,
  readInput,
  lacking,
  prefixHint,
  send,
  onClose,
  children,
}: {
  title: string
  button: string
  busy: string
  method: string
  start: KeyFields
  isNew: boolean
  readInput: (fields: KeyFields) => { input: Record<string, unknown>; problems: Problems }
  lacking: string | null
  prefixHint?: string
  send: (input: Record<string, unknown>) => Promise<void>
  onClose: () => void
  children?: preact.ComponentChildren
}) {
  const [fields, setFields] = useState(given)
  const [isTried, setTried] = useState(false)
  const { input, problems } = readInput(fields)
  const { start, isBusy, failed } = useAction(() => send(input))
  const refused = failed === null ? null : fieldOfMessage(failed.message)
  const set =
    <Name extends keyof KeyFields>(name: Name) =>
    (value: KeyFields[Name]) =>
      setFields({ ...fields, [name]: value })
  const error = (name: keyof KeyFields): string | null =>
    (isTried ? problems[name] : undefined) ??
    (refused === name && failed !== null ? `${failed.message} (${failed.requestId})` : null)
  const hasProblems = Object.keys(problems).length > 0
  const isUnchanged = !isNew && Object.keys(input).length === 1 && !hasProblems
  return (
    <Dialog title={title} onClose={onClose} isWide>
      <form
        class="sides"
        noValidate
        onSubmit={(event) => {
          event.preventDefault()
          setTried(true)
          if (!hasProblems && !isUnchanged) void start()
          else
            requestAnimationFrame(() =>
              document.querySelector<HTMLElement>('dialog [aria-invalid="true"]')?.focus(),
            )
        }}
      >
        <div class="stack">
          <Field
            label="Name"
            value={fields.name}
            onInput={set('name')}
            maxLength={256}
            placeholder="web checkout"
            error={error('name')}
          />
          {children}
          <div class="two">
            <Field
              label="External id"
              value={fields.externalId}
              onInput={set('externalId')}
              maxLength={256}
              placeholder="user_123"
              hint="Your id of the user or organisation."
              error={error('externalId')}
            />
            {isNew ? (
              <Field
                label="Prefix"
                value={fields.prefix}
                onInput={set('prefix')}
                maxLength={16}
                hint={prefixHint}
                error={error('prefix')}
                isMono
              />
            ) : (
              <Field
                label="Expires"
                type="datetime-local"
                value={fields.expires}
                onInput={set('expires')}
                hint="Empty = never. In your time zone."
                error={error('expires')}
              />
            )}
          </div>
          {isNew && (
            <div class="two">
              <Field
                label="Expires"
                type="datetime-local"
                value={fields.expires}
                onInput={set('expires')}
                hint="Empty = never. In your time zone."
                error={error('expires')}
              />
              <Field
                label="Environment"
                value={fields.environment}
                onInput={set('environment')}
                maxLength={256}
                placeholder="live"
                hint="A label that verifications return."
                error={error('environment')}
              />
            </div>
          )}
          <fieldset>
            <legend>Rate limit</legend>
            <div class="three">
              <Field
                label="Verifications"
                value={fields.limit}
                onInput={set('limit')}
                inputMode="numeric"
                placeholder="100"
                hint="Empty = no limit."
                error={error('limit')}
              />
              <Field
                label="In"
                value={fields.duration}
                onInput={set('duration')}
                inputMode="numeric"
                error={error('duration')}
              />
              <Choice
                label="Unit"
                value={fields.unit}
                options={UNITS.map(({ value, name }) => ({ value, name }))}
                onChange={set('unit')}
              />
            </div>
          </fieldset>
          <fieldset>
            <legend>Credits</legend>
            <div class="three">
              <Field
                label="Credits left"
                value={fields.remaining}
                onInput={set('remaining')}
                inputMode="numeric"
                hint="Empty = not counted."
                error={error('remaining')}
              />
              <Choice label="Refill" value={fields.refill} options={REFILLS} onChange={set('refill')} />
              {fields.refill !== 'none' && (
                <Field
                  label="Adds"
                  value={fields.refillAmount}
                  onInput={set('refillAmount')}
                  inputMode="numeric"
                  hint="Credits a refill."
                  error={error('refillAmount')}
                />
              )}
              {fields.refill === 'monthly' && (
                <Field
                  label="On day"
                  value={fields.refillDay}
                  onInput={set('refillDay')}
                  inputMode="numeric"
                  hint="Of the month, UTC."
                  error={error('refillDay')}
                />
              )}
            </div>
          </fieldset>
          {isNew && (
            <div class="two">
              <Field
                label="Roles"
                value={fields.roles}
                onInput={set('roles')}
                hint="Names, separated by commas."
                error={error('roles')}
              />
              <Field
                label="Permissions"
                value={fields.permissions}
                onInput={set('permissions')}
                placeholder="documents.read"
                hint="Slugs, separated by commas."
                error={error('permissions')}
              />
            </div>
          )}
          <Area
            label="Meta"
            value={fields.meta}
            onInput={set('meta')}
            rows={3}
            hint="A JSON object that every verification returns."
            error={error('meta')}
          />
          <div class="two">
            <Check
              label="Enabled"
              checked={fields.enabled}
              onChange={set('enabled')}
              hint="Off: every verification is refused, DISABLED."
            />
            {isNew && (
              <Check
                label="Recoverable"
                checked={fields.isRecoverable}
                onChange={set('isRecoverable')}
                hint="Stored encrypted too, so that it can be shown again."
              />
            )}
          </div>
        </div>
        <div class="stack">
          <CallText method={method} input={input} />
          {failed !== null && refused === null && <Failure failed={failed} />}
          <footer>
            <Button onClick={onClose}>Cancel</Button>
            <Button
              type="submit"
              kind="main"
              isBusy={isBusy}
              lacking={lacking ?? (isUnchanged ? 'nothing is changed yet' : null)}
            >
              {isBusy ? busy : button}
            </Button>
          </footer>
        </div>
      </form>
    </Dialog>
  )
}

const REFILLS = [
  { value: 'none', name: 'never' },
  { value: 'daily', name: 'daily' },
  { value: 'monthly', name: 'monthly' },
] as const
