// What a client of @confluentinc/kafka-javascript is told to reach a cluster by a way, which is an object as in
// secured_cells.py. They are settings of librdkafka.
export function reach ({ bootstrap, protocol = 'PLAINTEXT', ca, certificate, key, mechanism, user, password }) {
  const options = {
    'bootstrap.servers': bootstrap,
    'security.protocol': protocol,
    ...(ca && { 'ssl.ca.location': ca }),
    ...(certificate && { 'ssl.certificate.location': certificate, 'ssl.key.location': key }),
    ...(mechanism && { 'sasl.mechanism': mechanism })
  }
  if (mechanism === 'OAUTHBEARER') {
    const { exp } = JSON.parse(Buffer.from(password.split('.')[1], 'base64url'))
    const token = { tokenValue: password, principal: user, lifetime: 1000 * exp }
    return { ...options, oauthbearer_token_refresh_cb: async () => token }
  }
  return mechanism ? { ...options, 'sasl.username': user, 'sasl.password': password } : options
}
