// SPDX-License-Identifier: GPL-2.0
/*
 * Keys of the kernel's keyrings, and MACs by them, see kern.h. A kernel without
 * either has no keys.
 */

#include "kern.h"

#include <crypto/sha2.h>
#include <keys/user-type.h>
#include <linux/key.h>

#if IS_ENABLED(CONFIG_KEYS) && IS_REACHABLE(CONFIG_CRYPTO_LIB_SHA256)

/* With a reference. Nobody is asked to make one. */
void *zrs_helper_request_logon_key(const char *description)
{
	return request_key(&key_type_logon, description, NULL);
}

void zrs_helper_key_put(void *key)
{
	key_put(key);
}

int zrs_helper_key_validate(void *key)
{
	return key_validate(key);
}

/* A key that is revoked has no payload. */
unsigned int zrs_helper_key_bytes(void *key)
{
	const struct user_key_payload *payload;
	unsigned int bytes;

	rcu_read_lock();
	payload = user_key_payload_rcu(key);
	bytes = payload ? payload->datalen : 0;
	rcu_read_unlock();
	return bytes;
}

int zrs_helper_key_hmac_sha256(void *key, const u8 *data, size_t len, u8 *out)
{
	const struct user_key_payload *payload;
	int ret = key_validate(key);

	if (ret)
		return ret;
	rcu_read_lock();
	payload = user_key_payload_rcu(key);
	if (payload)
		hmac_sha256_usingrawkey(payload->data, payload->datalen, data,
					len, out);
	else
		ret = -EKEYREVOKED;
	rcu_read_unlock();
	return ret;
}

#else

void *zrs_helper_request_logon_key(const char *description)
{
	return ERR_PTR(-EOPNOTSUPP);
}

/* There is no key to call these with. */
void zrs_helper_key_put(void *key)
{
}

int zrs_helper_key_validate(void *key)
{
	return -EOPNOTSUPP;
}

unsigned int zrs_helper_key_bytes(void *key)
{
	return 0;
}

int zrs_helper_key_hmac_sha256(void *key, const u8 *data, size_t len, u8 *out)
{
	return -EOPNOTSUPP;
}

#endif
