"""From nothing to a federation: certificates, keys, the server's folder and a bundle for each silo.

DIR/federation.json, schema.json, README.md
DIR/ca/{ca.crt, ca.key}
DIR/server/{server.crt, server.key, ca.crt, address.json, keys/NAME.pub, app/, code/, nginx.conf, start.sh, *.service}
DIR/bundles/NAME/{silo.json, schema.json, ca.crt, key.pub, code/, start.sh, *.service, README.md} and NAME.zip

A bundle holds nothing of another silo, not even its name. The silo's private key is not in it: the silo makes that
itself; only in a trial (`--make-keys`) it is made here, and in the bundle as `key`.
"""

from fedamp.federation.provision.create import add as add
from fedamp.federation.provision.create import init as init
from fedamp.federation.provision.given_keys import read_keys as read_keys
from fedamp.federation.provision.model_code import code_of as code_of
from fedamp.federation.provision.renew import rekey as rekey
from fedamp.federation.provision.renew import renew as renew
