using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>A request to a <see cref="StoreModel"/>: it is filled, and what was filled in is kept until its answer comes.</summary>
/// <param name="request">Belongs to the store as soon as it is filled.</param>
/// <param name="known">What the model has for a key.</param>
internal sealed class ModelRequest(WriteRequest request, Func<string, (string? Value, Etag Etag)> known) : IChanges
{
    private List<ModelOperation>? _failure;

    public List<ModelCondition> Conditions { get; } = [];

    /// <summary>What is applied if all conditions hold.</summary>
    public List<ModelOperation> Operations { get; } = [];

    /// <summary>What is applied if one does not; null if nothing is.</summary>
    public IReadOnlyList<ModelOperation>? Failure => _failure;

    public bool WantsResults { get; private set; }

    /// <summary>Whether it is applied operation by operation.</summary>
    public bool IsExecuted { get; private set; }

    public Task<WriteResult>? Answer { get; set; }

    /// <summary>Adds a condition on what the model has now. It holds if no request in between changes the key.</summary>
    public void IfAsKnown(string key, ConditionKind kind) => If(key, kind, known(key).Etag, known(key).Value ?? "");

    public void If(string key, ConditionKind kind, Etag etag, string value) => If(new ModelCondition(kind, key, etag, value));

    public void If(ModelCondition condition)
    {
        condition.AddTo(request);
        Conditions.Add(condition);
    }

    /// <summary>Asks for a result of each operation. Ranges and sets are then not divided. Comes first.</summary>
    public void WantResults() => WantsResults = IsExecuted = request.WantsResults = request.IsWhole = true;

    public void BeginFailureList()
    {
        request.BeginFailureList();
        _failure = [];
    }

    public void Add(ModelOperation operation)
    {
        operation.AddTo(request);
        (_failure ?? Operations).Add(operation);
        IsExecuted = request.IsExecuted;
    }

    /// <inheritdoc/>
    public void Put(string key, string value) => Add(new(RequestOperation.Put, key, value));

    /// <inheritdoc/>
    public void Delete(string key) => Add(new(RequestOperation.Delete, key));

    /// <inheritdoc/>
    public void SetAdd(string key, string member) => Add(new(RequestOperation.SetAdd, key, member));

    /// <inheritdoc/>
    public void SetRemove(string key, string member) => Add(new(RequestOperation.SetRemove, key, member));

    public void SetDelete(string key) => Add(new(RequestOperation.SetDelete, key));

    /// <inheritdoc/>
    public void DeleteRange(string from, string to) => Add(new(RequestOperation.DeleteRange, from) { End = to });
}
