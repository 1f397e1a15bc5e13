// Attention by torch's own operators on the CPU, as the stand-ins for FlashAttention compute it.
#pragma once

#include <ATen/ATen.h>

// The same for every sequence of a call. With `causal` a query sees no key after itself, whatever `right` says.
struct Mask {
    double scale;
    bool causal;
    int64_t left, right;
};

// Where the sequences of a call lie: null where the caller gave nothing.
struct Sequences {
    const at::Tensor *q_starts, *k_starts, *seqused_k, *pages;
};

template <typename Given>
auto pointer(const Given &tensor)
{
    return tensor.has_value() ? &*tensor : nullptr;
}

inline int64_t number(const at::Tensor &tensor, int64_t place) { return tensor.select(0, place).item<int64_t>(); }

// One sequence: q and out [token, head, dim], k and v [token, key head, dim], lse [head, token].
inline void attend(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const at::Tensor &out,
                   const at::Tensor &lse, const Mask &mask)
{
    auto of_heads = [&](const at::Tensor &rows) {
        return rows.transpose(0, 1).repeat_interleave(q.size(1) / rows.size(1), 0).to(at::kFloat);
    };
    int64_t queries = q.size(0), keys = k.size(0), right = mask.causal ? 0 : mask.right;
    at::Tensor scores = at::matmul(of_heads(q), of_heads(k).transpose(1, 2)) * mask.scale;
    at::Tensor ahead = at::arange(keys).unsqueeze(0) - (at::arange(queries) + (keys - queries)).unsqueeze(1);
    if (right >= 0)
        scores.masked_fill_(ahead > right, -INFINITY);
    if (mask.left >= 0)
        scores.masked_fill_(ahead < -mask.left, -INFINITY);
    out.copy_(at::matmul(scores.softmax(-1), of_heads(v)).transpose(0, 1));
    lse.copy_(scores.logsumexp(-1));
}

// The keys or values of a sequence: [token, key head, dim].
inline at::Tensor of_sequence(const at::Tensor &cache, const Sequences &where, int64_t sequence, int64_t length)
{
    if (where.pages)
        return cache.index_select(0, where.pages->select(0, sequence)).flatten(0, 1).narrow(0, 0, length);
    return cache.narrow(0, number(*where.k_starts, sequence), length);
}

// Packed queries; returns the log of the sums, [head, token].
inline at::Tensor attend_packed(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const at::Tensor &out,
                                const Sequences &where, const Mask &mask)
{
    at::Tensor lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
    for (int64_t i = 0; i + 1 < where.q_starts->size(0); i++) {
        int64_t first = number(*where.q_starts, i), queries = number(*where.q_starts, i + 1) - first;
        int64_t keys =
            where.seqused_k ? number(*where.seqused_k, i) : number(*where.k_starts, i + 1) - number(*where.k_starts, i);
        attend(q.narrow(0, first, queries), of_sequence(k, where, i, keys), of_sequence(v, where, i, keys),
               out.narrow(0, first, queries), lse.narrow(1, first, queries), mask);
    }
    return lse;
}
