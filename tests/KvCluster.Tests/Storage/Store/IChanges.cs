namespace KvCluster.Tests.Storage.Store;

/// <summary>What takes changes: a request to a whole store, or a batch of a page store. Keys, values and members are text.</summary>
internal interface IChanges
{
    void Put(string key, string value);

    void Delete(string key);

    /// <summary>Deletes the keys from one up to another.</summary>
    void DeleteRange(string from, string to);

    void SetAdd(string key, string member);

    void SetRemove(string key, string member);
}
