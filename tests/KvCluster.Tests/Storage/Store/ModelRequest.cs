using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>A request to a <see cref="StoreModel"/>: it is filled, and what was filled in is kept until its answer comes.</summary>
/// <param name="request">Belongs to the store as soon as it is filled.</param>
/// <param name="known">What the model has for a key.</param>
internal sealed class ModelRequest(WriteRequest request, Func<string, (string? Value, Etag Etag)> known) : IChanges
{
    public List<(string Key, ConditionKind Kind, Etag Etag, string Value)> Conditions { get; } = [];

    /// <summary>For an operation on a set the value is the member; for a delete of a key or a set it is null.</summary>
    public List<(OperationCode Code, string Key, string? Value)> Operations { get; } = [];

    public (string From, string To)? Range { get; private set; }

    public Task<WriteResult>? Answer { get; set; }

    /// <summary>Adds a condition on what the model has now. It holds if no request in between changes the key.</summary>
    public void IfAsKnown(string key, ConditionKind kind) => If(key, kind, known(key).Etag, known(key).Value ?? "");

    public void If(string key, ConditionKind kind, Etag etag, string value)
    {
        request.AddCondition(StoreBench.Text(key), kind, etag, StoreBench.Text(value));
        Conditions.Add((key, kind, etag, value));
    }

    /// <inheritdoc/>
    public void Put(string key, string value)
    {
        request.Put(StoreBench.Text(key), StoreBench.Text(value));
        Operations.Add((OperationCode.Put, key, value));
    }

    /// <inheritdoc/>
    public void Delete(string key)
    {
        request.Delete(StoreBench.Text(key));
        Operations.Add((OperationCode.Delete, key, null));
    }

    /// <inheritdoc/>
    public void SetAdd(string key, string member)
    {
        request.SetAdd(StoreBench.Text(key), StoreBench.Text(member));
        Operations.Add((OperationCode.SetAdd, key, member));
    }

    /// <inheritdoc/>
    public void SetRemove(string key, string member)
    {
        request.SetRemove(StoreBench.Text(key), StoreBench.Text(member));
        Operations.Add((OperationCode.SetRemove, key, member));
    }

    public void SetDelete(string key)
    {
        request.SetDelete(StoreBench.Text(key));
        Operations.Add((OperationCode.SetDelete, key, null));
    }

    /// <inheritdoc/>
    /// <remarks>The model takes it as the only operation of its request.</remarks>
    public void DeleteRange(string from, string to)
    {
        Assert.Empty(Operations);
        request.DeleteRange(StoreBench.Text(from), StoreBench.Text(to));
        Range = (from, to);
    }
}
