using Google.Protobuf;
using KvCluster.Client.Transport;
using KvCluster.V1;
using Status = Google.Rpc.Status;

namespace KvCluster.Client;

/// <summary>
/// Finds out what the key of a condition has that did not hold, which the error of the change does not say. Used by <see cref="KvClient"/>; thread-safe.
/// </summary>
internal sealed class FailedConditions(ClientCalls calls)
{
    /// <summary>The condition that an error is about.</summary>
    /// <param name="error">The error of the change.</param>
    /// <param name="key">What is meant by conditions that name no key.</param>
    /// <param name="conditions">Those of the change.</param>
    /// <param name="withValue">Also read the value.</param>
    /// <param name="terms">What the whole call was given.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">The error is about something else. Or the key could not be read; nothing was applied then.</exception>
    public async ValueTask<KvFailedCondition> OfAsync(
        Status error, KvKey key, IReadOnlyList<Condition> conditions, bool withValue, CallTerms terms, CancellationToken cancellationToken)
    {
        var thrown = calls.ToException(error);
        if (thrown is not KvConditionFailedException failure || (uint)failure.ConditionIndex >= (uint)conditions.Count)
            throw thrown;
        var condition = conditions[failure.ConditionIndex];
        if (condition.TestCase is Condition.TestOneofCase.Range or Condition.TestOneofCase.SetHas or Condition.TestOneofCase.SetLacks)
            return new KvFailedCondition(failure.ConditionIndex, condition.Key.Memory, Found: false, default, default, failure.Position);
        var of = condition.Key.IsEmpty ? key : new KvKey(condition.Key.Memory);
        return withValue
            ? await WithValueAsync(failure.ConditionIndex, of, terms, cancellationToken).ConfigureAwait(false)
            : await WithoutValueAsync(failure.ConditionIndex, of, terms, cancellationToken).ConfigureAwait(false);
    }

    private async ValueTask<KvFailedCondition> WithValueAsync(int index, KvKey key, CallTerms terms, CancellationToken cancellationToken)
    {
        var read = await calls.GetAsync(key, KvReadMode.Leader, withLife: false, terms, cancellationToken).ConfigureAwait(false);
        return new KvFailedCondition(index, key, read.Found, read.Etag, read.Value, read.Position);
    }

    // A value of some MiB is not sent for its etag.
    private async ValueTask<KvFailedCondition> WithoutValueAsync(int index, KvKey key, CallTerms terms, CancellationToken cancellationToken)
    {
        var behind = (byte[])[.. key.Span, 0];
        var request = new ListRequest { Start = key.ToByteString(), End = UnsafeByteOperations.UnsafeWrap(behind), Limit = 1, KeysOnly = true };
        var read = ListResponse.Parser.ParseFrom(
            await calls.ReadAsync(Method.List, key, request, read: null, terms, cancellationToken).ConfigureAwait(false));
        var etag = read.Entries.Count > 0 ? read.Entries[0].Etag.ToEtag() : default;
        return new KvFailedCondition(index, key, read.Entries.Count > 0, etag, default, calls.See(read.Position));
    }
}
