using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Makes changes in a batch of a page store and in its model.</summary>
internal sealed class BatchChanges(ModelBatch batch) : IChanges
{
    /// <inheritdoc/>
    public void Put(string key, string value) => batch.Put(TreeId.Kv, StoreBench.Text(key), StoreBench.Text(value));

    /// <inheritdoc/>
    public void Delete(string key) => batch.Delete(TreeId.Kv, StoreBench.Text(key));

    /// <inheritdoc/>
    public void DeleteRange(string from, string to) => batch.DeleteRange(TreeId.Kv, StoreBench.Text(from), StoreBench.Text(to));

    /// <inheritdoc/>
    public void SetAdd(string key, string member) => batch.AddMember(StoreBench.Text(key), StoreBench.Text(member));

    /// <inheritdoc/>
    public void SetRemove(string key, string member) => batch.RemoveMember(StoreBench.Text(key), StoreBench.Text(member));
}
