using System.Diagnostics.CodeAnalysis;

namespace KvCluster.Client;

/// <summary>The outcome of a change under conditions, of which one may not have held.</summary>
/// <typeparam name="T">The answer to the change.</typeparam>
public sealed class KvTryResult<T>
{
    private readonly T? _result;

    /// <summary>The outcome of a change that was made.</summary>
    /// <param name="result">The answer to it.</param>
    public KvTryResult(T result) => _result = result;

    /// <summary>The outcome of a change that was not made.</summary>
    /// <param name="failed">The first condition that did not hold.</param>
    public KvTryResult(KvFailedCondition failed)
    {
        ArgumentNullException.ThrowIfNull(failed);
        Failed = failed;
    }

    /// <summary>Whether all conditions held, and the change was made.</summary>
    [MemberNotNullWhen(false, nameof(Failed))]
    public bool Succeeded => Failed is null;

    /// <summary>The answer to the change.</summary>
    /// <exception cref="InvalidOperationException">The change was not made (<see cref="Succeeded"/>).</exception>
    public T Result => Succeeded
        ? _result!
        : throw new InvalidOperationException($"The change was not made, because a condition on the key {Failed.Key} did not hold, so it has no answer.");

    /// <summary>The first condition that did not hold; null if the change was made.</summary>
    public KvFailedCondition? Failed { get; }
}

/// <summary>
/// A condition that did not hold, so that nothing was changed, and what its key has at present. That is read from the leader after the condition was tested, so
/// it may be newer than what the condition was tested on, and never older.
/// </summary>
/// <param name="Index">Its index among the conditions of the change, from 0 on.</param>
/// <param name="Key">The key that it is about. Of a condition on a range the first key; of one on a set the key of the set.</param>
/// <param name="Found">Whether the key exists. Always false for a condition on a range or a set, of which nothing is read.</param>
/// <param name="Etag">The etag of the change that set the key's value.</param>
/// <param name="Value">The value, if <see cref="KvChangeOptions.WithPresentValue"/> or <see cref="KvWrite.WithPresentValue"/> asked for it; otherwise
/// empty.</param>
/// <param name="Position">The state that this was read from.</param>
public sealed record KvFailedCondition(int Index, KvKey Key, bool Found, Etag Etag, KvValue Value, ShardPosition Position);
