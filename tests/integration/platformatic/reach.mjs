import { readFileSync } from 'node:fs'

// What a client of @platformatic/kafka is told to reach a cluster by a way, which is an object as in secured_cells.py.
export function reach ({ bootstrap, protocol = 'PLAINTEXT', ca, certificate, key, mechanism, user, password }) {
  const options = { bootstrapBrokers: bootstrap.split(','), clientId: 'platformatic' }
  if (protocol.endsWith('SSL')) {
    options.tls = { ca: readFileSync(ca) }
    if (certificate) Object.assign(options.tls, { cert: readFileSync(certificate), key: readFileSync(key) })
  }
  if (mechanism === 'OAUTHBEARER') options.sasl = { mechanism, token: password }
  else if (mechanism) options.sasl = { mechanism, username: user, password }
  return options
}
